"""The forced forward: a model runs the steps of a run while chosen taps are overwritten."""

from __future__ import annotations

from collections.abc import Sequence

from verify.replay.session import Watched
from verify.replay.sink import Sink
from verify.replay.steps import Implementation, RecordedStep


def run_forced(
    implementation: Implementation,
    steps: Sequence[RecordedStep],
    sink: Sink,
    watched: Watched | None = None,
) -> Watched:
    """Run all steps in order, from an empty cache.

    At each tap that the sink has rows for, the computed tensor is compared with them, and then
    overwritten in place where the sink forces that tap, so that every reader sees it.

    Raises:
        NotComparableError: the model computes other shapes than the run recorded.
    """
    watched = watched or watch(implementation, sink)
    runner = implementation.runner()
    runner.reset(steps[0], {})
    with implementation.ready(), watched.entered_model():
        for step in steps:
            runner.run(step, watched)
    return watched


def watch(implementation: Implementation, sink: Sink) -> Watched:
    """Hook points of an implementation for all taps of the sink's schedule."""
    schedule = sink.values.schedule
    taps = frozenset(record.tap for record in schedule.records)
    names = [s.id for s in schedule.dump.manifest.workload.sequences]
    ops = schedule.dump.manifest.capture.get("ops", ())
    return Watched(implementation.model, sink, taps, names, ops)
