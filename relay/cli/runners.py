"""Which runners there are, how each is built, and which of them RELAY_RUNNERS chooses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, assert_never

from relay.brokers.broker import Broker
from relay.brokers.pubsub import PubSub
from relay.cli.parts import careful, pubsub_address, routes
from relay.errors import ConfigurationError
from relay.failed_head import FailedHead
from relay.kernel.backoff import Delay, Retry
from relay.kernel.clock import Clock
from relay.kernel.observe import Observe
from relay.kernel.runner import Pace, Runner
from relay.kernel.worker import Worker
from relay.operate.retention import retention_job
from relay.operate.row_lines import kept_words
from relay.outbox.outbox import Connect, Outbox
from relay.publisher.failures import Attempts
from relay.publisher.policy import PublishPolicy
from relay.publisher.publisher import Publisher
from relay.setting_rules import FIRST_OUTAGE
from relay.settings import Settings
from relay.upkeep.building import job_runners, job_workers
from relay.upkeep.jobs import Job
from relay.upkeep.loading import load_jobs
from relay.upkeep.slots import SlotNow, Slots
from relay.upkeep.surroundings import surroundings

OUTAGE_JITTER_SECONDS = 0.25
_JOBS: Final = "jobs"
RETENTION: Final = "retention"


@dataclass(frozen=True, slots=True)
class OneRunner:
    """A runner, how it is built, and whether its passes are bounded by time alone or in their items too."""

    build: Callable[[Settings, Connect, Observe], Runner]
    by_time_alone: bool = False


@dataclass(frozen=True, slots=True)
class SomeJobs:
    """Jobs, each a runner of its own named `job:` and its name; all those of a process share what they work with."""

    jobs: Callable[[Settings], Iterable[Job]]


Kind = OneRunner | SomeJobs


def workers(
    settings: Settings, connect: Connect, clock: Clock, observe: Observe, table: Mapping[str, Kind] | None = None
) -> list[Worker]:
    """Build the runners that RELAY_RUNNERS names, in its order. Raises ConfigurationError where there are none."""
    known = RUNNERS if table is None else table
    kinds = [known[name] for name in chosen(settings, known)]
    jobs = {kind: list(kind.jobs(settings)) for kind in kinds if isinstance(kind, SomeJobs)}
    running = _job_workers([job for some in jobs.values() for job in some], settings, clock, observe)
    built: list[Worker] = []
    for kind in kinds:
        match kind:
            case OneRunner():
                built.append(_worker(kind, settings, connect, clock, observe))
            case SomeJobs():
                built += (running[job.name] for job in jobs[kind])
            case _:
                assert_never(kind)
    if not built:
        raise ConfigurationError(nothing_to_run(settings))
    return built


def nothing_to_run(settings: Settings) -> str:
    """What is wrong where all that is chosen are jobs, and there are none."""
    why = without_jobs(settings)
    if RETENTION in settings.runners and not our_jobs(settings):
        why.append("RELAY_RETENTION is off")
    if not why or (_JOBS in settings.runners and not settings.relay_app):
        why.append("name yours in RELAY_APP=module:name, or add publish")
    return f"RELAY_RUNNERS is {settings.relay_runners!r}, and there is no job to run: {'; '.join(why)}"


def _worker(kind: OneRunner, settings: Settings, connect: Connect, clock: Clock, observe: Observe) -> Worker:
    return Worker(
        kind.build(settings, connect, observe),
        clock,
        observe,
        # The last unit of a pass may begin as its budget ends. The database grants it this long, and so do we.
        grace=settings.relay_idle_tx_ms.total_seconds(),
        items=None if kind.by_time_alone else settings.relay_runner_max_items,
    )


def job_at_once(job: Job, settings: Settings, clock: Clock, observe: Observe) -> Worker:
    """The worker of one job, which runs it now, whatever its schedule."""
    return _job_workers([job], settings, clock, observe, SlotNow)[job.name]


def job_named(name: str, settings: Settings) -> Job:
    """That job, also where RELAY_RUNNERS leaves it out. Raises ConfigurationError where there is none of that name."""
    known = {job.name: job for job in (*our_jobs(settings), *app_jobs(settings))}
    if name in known:
        return known[name]
    raise ConfigurationError(
        f"there is no job {name!r}; {_nearest(name, known)}known: {', '.join(known) or 'none'}. RELAY_APP is "
        f"{settings.relay_app!r}"
    )


def _job_workers(
    jobs: Sequence[Job], settings: Settings, clock: Clock, observe: Observe, slots: type[Slots] = Slots
) -> dict[str, Worker]:
    """The workers of jobs, by their names."""
    if not jobs:
        return {}
    url, name, schema = settings.require_database(), settings.relay_name, settings.relay_schema
    runners = job_runners(
        jobs,
        surroundings(jobs, settings, observe, url=url, app=name, schema=schema),
        history_for=settings.relay_runs_retention,
        clock=clock,
        pace=pace(settings),
        redaction=careful(settings),
        slots=slots,
    )
    return {job.name: worker for job, worker in zip(jobs, job_workers(runners, clock, observe), strict=True)}


def jobs_of(settings: Settings) -> list[Job]:
    """All jobs that RELAY_RUNNERS chooses. Raises ConfigurationError."""
    kinds = [RUNNERS[name] for name in chosen(settings, RUNNERS)]
    return [job for kind in kinds if isinstance(kind, SomeJobs) for job in kind.jobs(settings)]


def app_jobs(settings: Settings) -> Iterable[Job]:
    """Those of RELAY_APP. Raises ConfigurationError where they cannot be had."""
    return load_jobs(settings.relay_app)


def our_jobs(settings: Settings) -> list[Job]:
    """Those that every relay has, unless it is told not to."""
    job = retention_job(settings.relay_schema, settings.relay_retention, settings.relay_retention_to)
    return [job] if job else []


def publishes(settings: Settings) -> bool:
    """Whether the publisher is one of the runners."""
    return Publisher.name in settings.runners


def chosen(settings: Settings, known: Mapping[str, Kind]) -> Sequence[str]:
    """The known names in RELAY_RUNNERS, each once. Raises ConfigurationError where there is none."""
    names = [name for name in settings.runners if name in known]
    if not names:
        raise ConfigurationError(
            f"RELAY_RUNNERS is {settings.relay_runners!r} and names no runner of this release; "
            f"choose from: {', '.join(known)}"
        )
    return names


def without_jobs(settings: Settings) -> list[str]:
    """A sentence where RELAY_APP names jobs that do not run: none are registered, or `jobs` is not chosen."""
    if not settings.relay_app:
        return []
    if _JOBS not in settings.runners:
        return [f"RELAY_APP is {settings.relay_app!r}, and its jobs do not run: RELAY_RUNNERS does not name jobs"]
    if not len(load_jobs(settings.relay_app)):
        return [
            f"RELAY_APP is {settings.relay_app!r}, which has no job; see that the modules are imported that add them"
        ]
    return []


def unknown(settings: Settings, known: Mapping[str, Kind]) -> list[str]:
    """A sentence for each name in RELAY_RUNNERS that is no runner."""
    return [
        f"RELAY_RUNNERS names {name!r}, which is no runner of this release and is left out; "
        f"{_nearest(name, known)}known: {', '.join(known)}"
        for name in settings.runners
        if name not in known
    ]


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}? " if near else ""


def pace(settings: Settings) -> Pace:
    """How long the loop of a runner other than publish waits."""
    error = settings.relay_error_backoff_ms.total_seconds()
    return Pace(
        busy=settings.relay_busy_ms.total_seconds(),
        idle=Delay(
            settings.relay_idle_min_ms.total_seconds(),
            settings.relay_idle_max_ms.total_seconds(),
            settings.relay_idle_jitter_ms.total_seconds(),
        ),
        error=Delay(error, error, settings.relay_error_backoff_jitter_ms.total_seconds()),
    )


def publisher(settings: Settings, connect: Connect, observe: Observe) -> Publisher:
    """Build the publisher. It connects in its first pass: a database that is away is the loop's to wait for."""
    outbox = Outbox(connect, settings.relay_schema, round(settings.relay_idle_tx_ms.total_seconds() * 1000))
    policy = replace(publish_policy(settings), said=kept_words(careful(settings)))
    return Publisher(outbox, BROKERS[settings.relay_broker](settings), policy, observe)


def publish_policy(settings: Settings) -> PublishPolicy:
    """What the settings say about publishing."""
    poll = settings.relay_poll_ms.total_seconds()
    most = settings.relay_outage_max_ms.total_seconds()
    return PublishPolicy(
        routes=routes(settings),
        batch_size=settings.relay_batch_size,
        slots=settings.relay_slots,
        publish_seconds=settings.relay_publish_budget_ms.total_seconds(),
        attempts=Attempts(
            settings.relay_max_attempts,
            Retry(
                settings.relay_retry_base_ms.total_seconds(),
                settings.relay_retry_max_ms.total_seconds(),
                settings.relay_retry_jitter_ms.total_seconds(),
            ),
        ),
        poll=Delay(poll, poll, settings.relay_poll_jitter_ms.total_seconds()),
        outage=Delay(FIRST_OUTAGE.total_seconds(), most, OUTAGE_JITTER_SECONDS),
        failed_head=FailedHead.parse(settings.relay_on_failed_head),
    )


# What RELAY_BROKER may name.
BROKERS: dict[str, Callable[[Settings], Broker]] = {"pubsub": lambda settings: PubSub(pubsub_address(settings))}
# What RELAY_RUNNERS may name. Runners other than publish wait as `pace` says, and jobs for their slots.
RUNNERS: dict[str, Kind] = {
    Publisher.name: OneRunner(publisher, by_time_alone=True),
    RETENTION: SomeJobs(our_jobs),
    _JOBS: SomeJobs(app_jobs),
}
