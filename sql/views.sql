-- The tables of a directory that nprof-export --to parquet wrote, as views. For DuckDB, which reads it
-- before the other files, in the directory itself:
--
--     cd /profiles && duckdb -init .../views.sql

create or replace view samples as
    select * from read_parquet('samples/*/*/*.parquet', hive_partitioning = true);
create or replace view stacks as
    select distinct stack_id, position, frame_id from read_parquet('stacks/*/*/*.parquet');
-- A frame has one kind, image and offset on all hosts; its path may differ.
create or replace view frames as
    select frame_id, min(kind) as kind, min(image) as image, min(path) as path,
           min(build_id) as build_id, min(file_offset) as file_offset,
           bool_or(return_address) as return_address, bool_or(kernel) as kernel
    from read_parquet('frames/*/*/*.parquet') group by frame_id;
create or replace view runs as
    select * from read_parquet('runs/*/*/*.parquet', hive_partitioning = true);
-- Hosts can know a frame by several names. All levels are those of one host: a name replaces an address, and
-- the most inlined calls replace fewer.
create or replace view symbols as
    with named as (
        select distinct frame_id, naming, level, function, file, line, status
        from read_parquet('symbols/*/*/*.parquet')),
    namings as (
        select frame_id, naming, min(status) as status, count(*) as levels
        from named group by frame_id, naming),
    ranked as (
        select frame_id, naming,
               row_number() over (partition by frame_id order by status, levels desc, naming) as place
        from namings)
    select n.frame_id, n.level, n.function, n.file, n.line, n.status
    from named n join ranked r on r.frame_id = n.frame_id and r.naming = n.naming
    where r.place = 1;
