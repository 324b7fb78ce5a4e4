-- The samples of each path as folded stacks, for inferno-flamegraph and others: root first.

with used as (
    select event, stack_id, sum(samples) as n from samples group by event, stack_id),
called as (
    select s.stack_id, s.position, c.level, c.function
    from stacks s join calls c on c.frame_id = s.frame_id),
paths as (
    select stack_id, string_agg(function, ';' order by position desc, level desc) as path
    from called group by stack_id)
select u.event, coalesce(p.path, '[no stack]') as path, sum(u.n) as samples
from used u left join paths p on p.stack_id = u.stack_id
group by u.event, coalesce(p.path, '[no stack]') order by u.event, samples desc, path;
