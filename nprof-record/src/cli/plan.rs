//! Plans the events of the command line.

use anyhow::bail;

use crate::cli::args::Args;
use crate::cli::message::print_message;
use crate::cli::target::Target;
use crate::event::{
    self, Catalog, CpuMode, EventRate, EventSpec, PreloadPlan, StackMode, WeightField,
};
use crate::os::load;
use crate::os::machine;
use crate::perf::open::Kernel;
use crate::perf::plan::{self, OpenMode, Plan, PlannedEvent, Request, RequestedEvent};

/// Plans the events of the command line, and prints warnings about the plan.
pub(crate) fn plan(
    args: &Args,
    specs: &[EventSpec],
    target: &Target,
    calls: Option<CpuMode>,
    kernel: &Kernel<'_>,
    cpus: &[u32],
    preload: Option<&PreloadPlan>,
) -> anyhow::Result<Plan> {
    let mut request = request(args, specs, target, calls)?;
    let setting = machine::sysctl("kernel/perf_event_max_sample_rate");
    if let Ok(highest) = setting.parse::<u64>() {
        // The kernel lowers its limit where interrupts take long, as in an emulated machine.
        if args.frequency.is_none() && lower_frequency(&mut request, highest) {
            print_message(&format!(
                "{} samples per second, since the kernel's limit is {highest}; raise sysctl \
                 kernel.perf_event_max_sample_rate for more",
                request.frequency
            ));
        }
        check_rate(&request, highest)?;
    }
    let mut plan = match open_plan(&request, kernel, cpus) {
        // The library needs no right of the kernel.
        Err(_) if request.events.is_empty() => return Ok(Plan::without_kernel(&request)),
        opened => opened?,
    };
    while let Some(number) = repeated(&plan)? {
        request.events.remove(number);
        plan = open_plan(&request, kernel, cpus)?;
    }
    // Rings of all CPUs then overflow by the samples of other programs. A command may start short-lived
    // processes, of which inheritance misses more: 80 % of the time of tasks of 0.2 ms, where the rings
    // lost 0 to 27 %.
    let is_choice = request.open_modes.contains(&OpenMode::Task);
    let has_samples = !request.events.is_empty();
    if plan.common.open_mode == OpenMode::System
        && is_choice
        && matches!(target, Target::Processes(_))
        && has_samples
        && load::must_wait_for_cpu(machine::online_cpus().len())
    {
        request.open_modes = vec![OpenMode::Task];
        plan = open_plan(&request, kernel, cpus)?;
        print_message(
            "busy machine: most of the work of short-lived processes and threads will be missing; \
             run as root or with CAP_SYS_NICE to record it, or select --follow system",
        );
    }
    let reads_register = |planned: &PlannedEvent| {
        let fields = planned.event.configs.iter().filter_map(|config| config.field);
        fields.into_iter().any(|field| matches!(field, WeightField::Register(_)))
    };
    if let Some(planned) = plan.events.iter().find(|planned| reads_register(planned))
        && plan.common.unwind != StackMode::Dwarf
    {
        bail!("{}: registers are read with --unwind dwarf only", planned.requested_name);
    }
    let is_without_frequency = |(wanted, chosen): (&RequestedEvent, &PlannedEvent)| {
        wanted.period.is_some() || chosen.event.rate == EventRate::EveryEvent
    };
    for PlannedEvent { requested_name, event, .. } in &plan.events {
        if !event.is_on_all(cpus) {
            let having = cpus.iter().filter(|&&cpu| event.is_on_all(&[cpu]));
            let having: Vec<_> = having.map(u32::to_string).collect();
            print_message(&format!(
                "{requested_name} is counted on CPU {} only: code on other CPUs has no samples; \
                 -e cpu-clock samples all",
                having.join(", ")
            ));
        }
    }
    if args.frequency.is_some()
        && request.events.iter().zip(&plan.events).all(is_without_frequency)
        && preload.is_none_or(|preload| !preload.is_adapted())
    {
        print_message("-F is not used: each event has a period of its own");
    }
    if has_samples
        && plan.common.open_mode == OpenMode::Task
        && request.open_modes.contains(&OpenMode::System)
    {
        let loses_kernel = request.scope == CpuMode::Both && plan.common.scope == CpuMode::User;
        let kernel = if loses_kernel { "the kernel and " } else { "" };
        print_message(&format!(
            "not privileged: {kernel}most of the work of short-lived processes and threads will be \
             missing; run as root or with CAP_PERFMON to record it"
        ));
    }
    Ok(plan)
}

/// Returns the index of an event that an earlier one contains already, as by `-e wall -e cpu-clock`: reports add
/// up events of one name. None if there is none.
fn repeated(plan: &Plan) -> anyhow::Result<Option<usize>> {
    let is_apart = |pair: (CpuMode, CpuMode)| {
        matches!(pair, (CpuMode::User, CpuMode::Kernel) | (CpuMode::Kernel, CpuMode::User))
    };
    let sampling = |it: &PlannedEvent| (it.period, it.event.value_period, it.scope);
    for (number, planned) in plan.events.iter().enumerate() {
        let name = &planned.event.name;
        let mut earlier = plan.events[..number].iter();
        let same =
            |it: &&PlannedEvent| it.event.name == *name && !is_apart((it.scope, planned.scope));
        match earlier.find(same) {
            Some(it) if sampling(it) == sampling(planned) => return Ok(Some(number)),
            Some(_) => {
                bail!(
                    "-e: {name} is requested twice, with different periods or modifiers; keep one"
                )
            }
            None => {}
        }
    }
    Ok(None)
}

fn open_plan(request: &Request, kernel: &Kernel<'_>, cpus: &[u32]) -> anyhow::Result<Plan> {
    plan::plan(kernel, request, cpus).map_err(|refusal| {
        let paranoid = machine::sysctl("kernel/perf_event_paranoid").parse().ok();
        anyhow::anyhow!(refusal.explain(paranoid))
    })
}

/// Looks up the events of the command line, and collects the options for them.
fn request(
    args: &Args,
    specs: &[EventSpec],
    target: &Target,
    calls: Option<CpuMode>,
) -> anyhow::Result<Request> {
    let catalog = Catalog::of_this_machine();
    let mut events = Vec::new();
    for spec in specs {
        let mut candidates =
            catalog.candidates(spec).map_err(|reason| anyhow::anyhow!("-e: {reason}"))?;
        let mut period = spec.period.or(args.count);
        // The kernel counts events, not the values of their fields.
        for candidate in candidates.iter_mut().filter(|candidate| candidate.is_weighed()) {
            candidate.value_period = period.take();
        }
        events.push(RequestedEvent {
            name: spec.name.clone(),
            candidates,
            period,
            scope: spec.mode,
        });
    }
    if let scope @ Some(_) = calls {
        let name = "calls".to_owned();
        let candidates = vec![event::calls()];
        events.push(RequestedEvent { name, candidates, period: Some(1), scope });
    }
    Ok(Request {
        events,
        frequency: args.frequency(),
        unwind: args.unwind(),
        stack_size: args.stack_size,
        scope: args.mode(),
        open_modes: target.open_modes(args.follow),
        delayed: args.times().delay.is_some(),
    })
}

/// Lowers a frequency above the kernel's limit. True if an event uses it.
///
/// A quarter of the samples is missing at the limit itself, on a kernel with 250 ticks per second and a limit of 500:
/// the kernel stops an event until the next tick when it has taken as many samples as fit into one. Hence
/// half of the limit, less 1 so that samples are not synchronous with timers.
fn lower_frequency(request: &mut Request, highest: u64) -> bool {
    if request.frequency <= highest {
        return false;
    }
    request.frequency = (highest / 2).saturating_sub(1).max(1);
    request.events.iter().any(|wanted| wanted.rate().is_none())
}

/// Checks the sampling rates against the kernel's limit.
///
/// # Errors
///
/// If an event exceeds it. The kernel refuses such a frequency, and throttles such a period.
fn check_rate(request: &Request, highest: u64) -> anyhow::Result<()> {
    for wanted in &request.events {
        let rate = wanted.rate().unwrap_or(request.frequency);
        if rate > highest {
            let remedy = match wanted.period {
                Some(_) => {
                    format!("choose a period of at least {}", wanted.shortest_period(highest))
                }
                None => "lower the frequency".to_owned(),
            };
            bail!(
                "{}: {rate} samples per second exceed the kernel's limit of {highest}; {remedy}, or raise \
                 sysctl kernel.perf_event_max_sample_rate",
                wanted.name
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    fn event(event: Event, period: Option<u64>) -> RequestedEvent {
        RequestedEvent { name: event.name.clone(), candidates: vec![event], period, scope: None }
    }

    /// Returns a request of events at 997 Hz.
    fn request(events: Vec<RequestedEvent>) -> Request {
        Request {
            events,
            frequency: 997,
            unwind: None,
            stack_size: 8,
            scope: CpuMode::User,
            open_modes: Vec::new(),
            delayed: false,
        }
    }

    #[test]
    fn shortest_period_of_the_kernel_is_named() {
        let clock = Event { rate: EventRate::PerCpuSecond(1_000_000_000), ..event::calls() };
        let with = |period| request(vec![event(clock.clone(), Some(period))]);
        let error = check_rate(&with(100), 60_000).expect_err("too often").to_string();
        assert!(error.contains("a period of at least 16667,"), "{error}");
        assert!(check_rate(&with(16_667), 60_000).is_ok());
    }

    #[test]
    fn frequency_is_below_the_limit_of_the_kernel() {
        let request =
            |period| request(vec![event(event::calls(), Some(1)), event(event::calls(), period)]);
        let lowered = |mut request: Request, highest| {
            let is_noticed = lower_frequency(&mut request, highest);
            (request.frequency, is_noticed)
        };
        assert_eq!(lowered(request(None), 500), (249, true));
        assert_eq!(lowered(request(None), 997), (997, false));
        assert_eq!(lowered(request(None), 1), (1, true));
        // All have periods of their own.
        assert_eq!(lowered(request(Some(9)), 500), (249, false));
    }
}
