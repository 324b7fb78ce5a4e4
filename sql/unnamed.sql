-- Frames without names, as a stream: the input of nprof-symbolize. See docs/fleet.md.
--
--     duckdb -noheader -list -init views.sql -c ".read unnamed.sql" > frames.txt
--
-- The id of the run is that of its frames: the files of a later pass do not replace those of an earlier one.

with wanted as (
    select f.*, row_number() over (order by build_id, image, file_offset, frame_id) as id
    from frames f where kind not in ('', 'anon', 'jit') and build_id <> ''
      and frame_id not in (select frame_id from symbols where status = 'named')),
images as (
    select kind, build_id, image, min(path) as path,
           row_number() over (order by kind, build_id, image) as image_id
    from wanted group by kind, build_id, image),
lines as (
    select 0 as part, 0 as id, '@nprof\t1.1\trun=0x' || lower(to_hex(coalesce(bit_xor(frame_id), 0)))
        || '\tcommand=unnamed' as line from wanted
    union all select 1, 0, '@event\tid=1\tname=frames'
    union all select 2, image_id, 'I\t' || image_id || '\t' || kind || '\t' || build_id || '\t' || path
    from images
    union all select 3, id, 'F\t' || id || '\t' || image_id || '\t0x' || lower(to_hex(file_offset))
        || case when kernel then '\tk' else '\tu' end || case when return_address then ',ra' else '' end
    from wanted join images using (kind, build_id, image)
    union all select 4, id, 'N\t' || id || '\t0\t' || id from wanted
    union all select 5, id, 'S\t0\t1\t0\t-\t' || id || '\t1\t1' from wanted
    union all select 6, 0, '@end\tsamples=' || count(*) || '\trecords='
        || (1 + 3 * count(*) + (select count(*) from images)) || '\tlost=0' from wanted)
select replace(line, '\t', chr(9)) from lines order by part, id;
