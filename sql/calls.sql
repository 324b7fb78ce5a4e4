-- The calls of each frame, as reports label them: without names, image and offset.

create or replace view calls as
    select f.frame_id, coalesce(s.level, 0) as level,
           coalesce(s.function, f.image || '+0x' || lower(to_hex(f.file_offset))) as function,
           case when f.kind = 'jit' or (f.kind = 'anon' and s.status = 'named') then '[jit]'
                when f.kind = '' then s.function else f.image end as image,
           s.file, s.line
    from frames f left join symbols s using (frame_id);
