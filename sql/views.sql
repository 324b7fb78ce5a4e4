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
-- Names of a later pass replace addresses.
create or replace view symbols as
    with named as (
        select distinct frame_id, level, function, file, line, status
        from read_parquet('symbols/*/*/*.parquet')),
    best as (select frame_id, min(status) as status from named group by frame_id)
    select frame_id, level, min(function) as function, min(file) as file, min(line) as line, status
    from named join best using (frame_id, status)
    group by frame_id, level, status;
