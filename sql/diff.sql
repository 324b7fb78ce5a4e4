-- Changes of the total of functions between two versions of a service, in percentage points of the weight
-- of all samples, with the half width of an interval of 95 %. Hosts are the replicates: the variance is
-- that of the share between hosts (a ratio estimator), so that samples of a host need not be independent.
-- At least two hosts of each version are needed; below ten, the interval is too narrow, as it has the
-- quantile of a normal distribution. The shares and their change are those of nprof-diff, by weight, if all
-- hosts have equally much weight: here a host counts by its weight, there each run counts as one.
--
-- It reads its parameters from a view:
--
--     create or replace view compared as
--         select 'api' as service, 'cpu-clock' as event, '1.0' as base, '1.1' as new;

with chosen as (
    select s.version, s.host, s.stack_id, sum(s.samples) as n, cast(sum(s.weight) as double) as w
    from samples s join compared c on s.service = c.service and s.event = c.event
        and (s.version = c.base or s.version = c.new)
    group by s.version, s.host, s.stack_id),
totals as (select version, host, sum(w) as whole from chosen group by version, host),
on_stack as (
    select distinct s.stack_id, c.function, c.image
    from stacks s join calls c on c.frame_id = s.frame_id
    where s.stack_id in (select stack_id from chosen)),
per_host as (
    select coalesce(o.function, '[no stack]') as function, coalesce(o.image, '[no stack]') as image,
           c.version, c.host, sum(c.n) as n, sum(c.w) as part
    from chosen c left join on_stack o on o.stack_id = c.stack_id
    group by 1, 2, c.version, c.host),
-- Rare functions say nothing.
kept as (select function, image from per_host group by function, image having sum(n) >= 30),
-- A function that a host does not have is 0 there.
grid as (
    select k.function, k.image, t.version, t.host, coalesce(p.part, 0.0) as part, t.whole
    from kept k cross join totals t
    left join per_host p on p.function = k.function and p.image = k.image
        and p.version = t.version and p.host = t.host),
shares as (
    select function, image, version, sum(part) / sum(whole) as share, count(*) as hosts,
           sum(whole) as whole
    from grid group by function, image, version),
errors as (
    select g.function, g.image, g.version, min(s.share) as share, min(s.hosts) as hosts,
           min(s.hosts) / (min(s.hosts) - 1.0)
               * sum(power(g.part - s.share * g.whole, 2)) / power(min(s.whole), 2) as variance
    from grid g join shares s on s.function = g.function and s.image = g.image and s.version = g.version
    where s.hosts > 1
    group by g.function, g.image, g.version)
select b.function, b.image, 100 * b.share as base_percent, 100 * n.share as new_percent,
       100 * (n.share - b.share) as change,
       100 * 1.96 * sqrt(b.variance + n.variance) as half_width,
       b.hosts as base_hosts, n.hosts as new_hosts
from errors b join errors n on n.function = b.function and n.image = b.image
join compared c on b.version = c.base and n.version = c.new
order by abs(n.share - b.share) desc, b.function, b.image;
