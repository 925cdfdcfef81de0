"""The kernels inside a Hugging Face model, by name; the CPU oracle stands in for the GPU."""

from __future__ import annotations

import pytest
import torch

from verify import gpu

transformers = pytest.importorskip("transformers")

CHUNK = 64


def make_model(attention: str, device: str = "cpu") -> torch.nn.Module:
    """A Gemma 3 text model with random weights: layer 0 has a sliding window, layer 1 has not."""
    config = transformers.Gemma3TextConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        query_pre_attn_scalar=256,
        sliding_window=512,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=1024,
    )
    config._attn_implementation = attention
    torch.manual_seed(0)
    model = transformers.Gemma3ForCausalLM(config).to(torch.float16).eval()
    return model.to(device)


def prefill_in_chunks(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    cache = transformers.DynamicCache(config=model.config)
    logits = []
    with torch.no_grad():
        for start in range(0, ids.shape[1], CHUNK):
            part = model(ids[:, start : start + CHUNK], past_key_values=cache, use_cache=True)
            logits.append(part.logits)
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize(
    ("device", "route"),
    [
        pytest.param("cpu", "cpu_replay_oracle", id="cpu"),
        pytest.param("cuda", "prefill", id="cuda", marks=pytest.mark.gpu),
    ],
)
def test_full_attention_layers_take_our_route_after_the_first_chunk(
    device: str, route: str
) -> None:
    name = gpu.register_attention()
    assert name == "verify_prefill"
    ids = torch.arange(2 * CHUNK, device=device)[None] % 128
    with gpu.record_routes() as routes:
        ours = prefill_in_chunks(make_model(name, device), ids)
    # Two chunks of two layers: the first chunk has no prefix, the sliding layer has a mask.
    assert [r.route.startswith(route) for r in routes] == [False, False, False, True]
    assert [r.route for r in routes[:3]] == ["sdpa"] * 3
    assert "empty prefix" in routes[0].reason and "empty prefix" in routes[1].reason
    assert "mask" in routes[2].reason
    theirs = prefill_in_chunks(make_model("sdpa", device), ids)
    # Both are FP16 computations of the same thing: a handful of ulp of the largest logit.
    limit = 8 * 2.0**-10 * float(theirs.abs().max())
    assert float((ours - theirs).abs().max()) <= limit


@pytest.mark.parametrize(
    "device", [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_a_decode_step_takes_sdpa_by_name_and_reads_what_prefill_left(device: str) -> None:
    ids = torch.arange(2 * CHUNK, device=device)[None] % 128
    chosen = torch.tensor([[5]], device=device)
    logits = {}
    for attention in (gpu.register_attention(), "sdpa"):
        model = make_model(attention, device)
        cache = transformers.DynamicCache(config=model.config)
        with torch.no_grad():
            for part in ids.split(CHUNK, dim=1):
                model(part, past_key_values=cache, use_cache=True)
            with gpu.record_routes() as routes:
                logits[attention] = model(chosen, past_key_values=cache, use_cache=True).logits
        if attention != "sdpa":
            assert [r.route for r in routes] == ["sdpa"] * 2
            assert all(r.reason for r in routes)
    ours, theirs = logits.values()
    # As above; the cache holds what one prefill call of ours has influenced.
    assert float((ours - theirs).abs().max()) <= 8 * 2.0**-10 * float(theirs.abs().max())


def test_a_padded_batch_goes_to_sdpa_with_the_same_result() -> None:
    gpu.register_attention()
    ids = torch.arange(2 * 16).view(2, 16) % 128
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    with gpu.record_routes() as routes, torch.no_grad():
        ours = make_model("verify_prefill")(ids, attention_mask=mask).logits
        theirs = make_model("sdpa")(ids, attention_mask=mask).logits
    assert {r.route for r in routes} == {"sdpa"}
    assert torch.equal(ours[mask.bool()], theirs[mask.bool()])
