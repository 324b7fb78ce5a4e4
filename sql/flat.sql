-- The table of nprof-flat: self and total of each function, by event. A function counts once a sample.

with used as (
    select event, stack_id, sum(samples) as n, sum(weight) as w from samples group by event, stack_id),
on_stack as (
    select s.stack_id, c.function, c.image,
           max(case when s.position = 0 and c.level = 0 then 1 else 0 end) as is_leaf
    from stacks s join calls c on c.frame_id = s.frame_id
    group by s.stack_id, c.function, c.image),
counted as (
    select u.event, coalesce(o.function, '[no stack]') as function,
           coalesce(o.image, '[no stack]') as image, coalesce(o.is_leaf, 1) as is_leaf, u.n, u.w
    from used u left join on_stack o on o.stack_id = u.stack_id)
select event, function, image,
       sum(n * is_leaf) as self_samples, sum(n) as total_samples,
       sum(w * is_leaf) as self, sum(w) as total
from counted group by event, function, image
order by event, self desc, total desc, function, image;
