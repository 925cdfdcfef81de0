"""Every ready relation holds for an honest endpoint and breaks under its planted fault."""

import itertools

import pytest
import torch

from verify.bounds import Bound
from verify.endpoints import Case, Endpoint, EndpointSpec, Relation, compare_endpoints, relations
from verify.endpoints.result import RelationCheck, State

BLOCKS, PAGE, DIM = 5, 4, 8


def make_paged(device="cpu", lengths=(6, 3)):
    draw = torch.Generator().manual_seed(3)
    cache = torch.randn(BLOCKS, PAGE, DIM, generator=draw).half()
    table = torch.tensor([[3, 0], [1, 4]], dtype=torch.int32)
    live = torch.tensor(lengths, dtype=torch.int32)
    return {n: t.to(device) for n, t in (("cache", cache), ("table", table), ("lens", live))}


def gather(cache, table, lens):
    """Live positions of every sequence, zeros behind; no wait for the device."""
    pages = cache[table.long()].flatten(1, 2)
    position = torch.arange(pages.shape[1], device=cache.device)
    return pages.masked_fill(position[None, :, None] >= lens[:, None, None], 0.0)


def by_place(cache, table, lens):
    return gather(cache, torch.tensor([[3, 0], [1, 4]], device=cache.device), lens)


def past_the_end(cache, table, lens):
    return gather(cache, table, lens + 1)


def outcome(call, relation, make=make_paged):
    spec = EndpointSpec(
        endpoints={"honest": Endpoint(lambda **inputs: torch.zeros(1)), "it": Endpoint(call)},
        cases=[Case("one", make)],
        relations=[
            Relation(relation.name, relation.kind, relation.transform, relation.run, ["it"])
        ],
    )
    (check,) = (c for c in compare_endpoints(spec).checks if isinstance(c, RelationCheck))
    return check


def expect(state, reason, call, relation, make=make_paged):
    check = outcome(call, relation, make)
    assert check.state is state, check.reason
    assert reason in check.reason
    return check


def test_repeat_counts_its_trials_and_names_the_one_that_broke():
    assert expect(State.PASSED, "", gather, relations.repeat(4)).trials == 4
    calls = itertools.count()

    def unstable(cache, table, lens):
        return gather(cache, table, lens) + (next(calls) == 2)

    check = expect(State.DIFFERENT, "repeat 2: ", unstable, relations.repeat(4))
    assert check.trials == 2 and check.tensors[0].differing_elements > 0


def test_repeat_that_tries_nothing_is_not_run():
    expect(State.NOT_RUN, "tried nothing", gather, relations.repeat(0))


def test_page_permutation():
    moved = relations.permute_pages(["cache"], "table")
    expect(State.PASSED, "", gather, moved)
    expect(State.DIFFERENT, "elements differ", by_place, moved)


def test_page_permutation_moves_every_page():
    for count in range(2, 9):
        order = relations._derangement(count, seed=count)
        assert sorted(order.tolist()) == list(range(count))
        assert not (order == torch.arange(count)).any()


def test_page_permutation_of_one_page_is_not_run():
    def one_page():
        inputs = make_paged()
        return inputs | {"cache": inputs["cache"][:1], "table": inputs["table"] * 0}

    moved = relations.permute_pages(["cache"], "table")
    expect(State.NOT_RUN, "one physical page", gather, moved, one_page)


def rows():
    return {"x": torch.randn(6, 4, generator=torch.Generator().manual_seed(0))}


@pytest.mark.parametrize("side", ["front", "back"])
def test_padding(side):
    padded = relations.pad(["x"], 0, 3, side=side)
    expect(State.PASSED, "", lambda x: x.softmax(-1), padded, rows)
    expect(State.DIFFERENT, "elements differ", lambda x: x.softmax(0), padded, rows)


def test_a_choice_is_bitwise_or_bounded():
    def split(x, parts=1):
        return sum(piece.sum(0) for piece in x.chunk(parts))

    def many():
        return {"x": torch.randn(999, 3, generator=torch.Generator().manual_seed(0))}

    expect(State.DIFFERENT, "", split, relations.choose("7 parts", parts=7), many)
    near = relations.choose("7 parts", Bound(1e-5, "999 additions in float32"), parts=7)
    assert expect(State.PASSED, "", split, near, many).tensors[0].relative_l2 > 0
    tight = relations.choose("7 parts", Bound(1e-9, "below float32"), parts=7)
    expect(State.DIFFERENT, "exceeds 1e-09 (below float32)", split, tight, many)


def test_poison_around_finds_a_read_beyond_the_end():
    def reads_on(x):
        return torch.as_strided(x, (7, 4), (4, 1), x.storage_offset()).sum(0)

    def safe():
        store = torch.zeros(7, 4)
        return {"x": store.copy_(torch.ones(7, 4))[:6]}

    expect(State.PASSED, "", lambda x: x.sum(0), relations.poison_around(), safe)
    expect(State.DIFFERENT, "elements differ", reads_on, relations.poison_around(), safe)


def test_poison_around_finds_a_write_before_the_start():
    def writes(x):
        if x.storage_offset():
            torch.as_strided(x, (1,), (1,), x.storage_offset() - 1).fill_(7.0)
        return x.sum(0)

    expect(
        State.FAILED, "memory around x was written", writes, relations.poison_around(["x"]), rows
    )


def test_poison_around_keeps_strides_and_values():
    def strided():
        return {"x": rows()["x"].T}

    expect(State.PASSED, "", lambda x: torch.tensor(x.stride()), relations.poison_around(), strided)


def test_poison_of_unowned_pages():
    poison = relations.poison_pages(["cache"], "table", "lens")
    expect(State.PASSED, "", gather, poison)
    expect(State.DIFFERENT, "elements differ", past_the_end, poison)


def test_poison_where_everything_is_owned_is_not_run():
    def full():
        table = torch.arange(BLOCKS, dtype=torch.int32)[None]
        return make_paged(lengths=[BLOCKS * PAGE]) | {"table": table}

    poison = relations.poison_pages(["cache"], "table", "lens")
    expect(State.NOT_RUN, "own every position", gather, poison, full)


@pytest.mark.parametrize("relation", [relations.other_stream(), relations.graph_replay()])
def test_streams_and_graphs_without_cuda_are_not_run(relation):
    expect(State.NOT_RUN, "needs a CUDA device", gather, relation)


def test_what_is_not_run_is_exit_code_3_and_never_a_pass():
    spec = EndpointSpec(
        endpoints={"a": Endpoint(gather), "b": Endpoint(gather)},
        cases=[Case("one", make_paged)],
        relations=[relations.other_stream()],
    )
    result = compare_endpoints(spec)
    assert result.exit_code == 3 and len(result.of(State.NOT_RUN)) == 2


def test_a_relation_that_raises_fails():
    expect(State.FAILED, "KeyError", gather, relations.permute_pages(["nowhere"], "table"))


def test_an_endpoint_that_fails_under_a_relation_fails():
    def fragile(x):
        if len(x) > 6:
            raise RuntimeError("planted")
        return x

    expect(State.FAILED, "planted", fragile, relations.pad(["x"], 0, 1), rows)


@pytest.mark.gpu
def test_streams_and_graphs_on_a_gpu():
    def on_gpu():
        return make_paged("cuda")

    change = relations.shorten("lens")
    expect(State.PASSED, "", gather, relations.other_stream(), on_gpu)
    assert expect(State.PASSED, "", gather, relations.graph_replay(change), on_gpu).trials == 3


@pytest.mark.gpu
def test_a_graph_that_keeps_its_lengths_is_found_out():
    kept = {}

    def keeps_lengths(cache, table, lens):
        if torch.cuda.is_current_stream_capturing():
            return gather(cache, table, kept["lens"])  # of the call before, not of the input
        kept["lens"] = lens.clone()
        return gather(cache, table, lens)

    change = relations.shorten("lens")
    check = expect(
        State.DIFFERENT, "replay with changed inputs", keeps_lengths,
        relations.graph_replay(change), lambda: make_paged("cuda"),
    )  # fmt: skip
    assert check.trials == 2


@pytest.mark.gpu
def test_a_call_that_waits_for_the_device_cannot_be_captured():
    def waits(cache, table, lens):
        return gather(cache, table, lens)[:, : int(lens.max())]

    expect(State.FAILED, "did not run", waits, relations.graph_replay(), lambda: make_paged("cuda"))
