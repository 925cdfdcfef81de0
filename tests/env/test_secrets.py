"""What looks like a secret is replaced; what only sounds like one stays."""

import pytest

from verify.env import redact, redact_all, redact_command
from verify.env.secrets import names_a_secret

LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
SECRETS = {
    "hugging face": f"hf_{LETTERS[:34]}",
    "github": f"ghp_{LETTERS}",
    "github fine": f"github_pat_{LETTERS}",
    "openai": f"sk-proj-{LETTERS}",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "slack": "xoxb-123456789012-abcdefghij",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_tokens_of_known_shapes_go(secret):
    for text in (secret, f"x={secret}", f"got '{secret}',", f"https://h/?q={secret}&z=1"):
        assert secret not in redact(text)
        assert "[redacted]" in redact(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pa55word@host/x", "https://[redacted]@host/x"),
        ("git+ssh://git@host/x", "git+ssh://[redacted]@host/x"),
        ("Authorization: Bearer abcdefgh1234", "Authorization: Bearer [redacted]"),
        ("password=hunter22", "password=[redacted]"),
        ('{"api_key": "0123456789ab"}', '{"api_key": "[redacted]"}'),
        ("HF_TOKEN=whatever1", "HF_TOKEN=[redacted]"),
    ],
)
def test_passwords_go_and_what_stands_around_stays(text, shown):
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "the first token: position 109 differs",
        '"eos_token": "<|endoftext|>"',
        "max_new_tokens=128 tokens.out token_id=151645",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "model.layers.0.self_attn.attn.in.k",
        "https://example.org/a@b",
        "task-sk-1 risk-free basic ideas",
    ],
)
def test_innocent_text_stays(text):
    assert redact(text) == text


def test_the_value_after_an_option_goes():
    words = ["verify", "--hf-token", "correcthorse", "--max-new-tokens", "8", "--token=battery1"]
    assert redact_command(words) == [
        "verify", "--hf-token", "[redacted]", "--max-new-tokens", "8", "--token=[redacted]",
    ]  # fmt: skip


def test_the_values_of_secret_variables_go_wherever_they_stand(monkeypatch):
    monkeypatch.setenv("SERVICE_PASSWORD", "plainword")
    assert redact("it said plainword twice: plainword") == "it said [redacted] twice: [redacted]"


def test_nested_tables_go_through_whole():
    table = {"a": [f"hf_{LETTERS}"], "password": "x", "eos_token": "</s>", "n": 3}
    assert redact_all(table) == {
        "a": ["[redacted]"], "password": "[redacted]", "eos_token": "</s>", "n": 3,
    }  # fmt: skip


def test_names():
    assert all(map(names_a_secret, ["HF_TOKEN", "--api-key", "AWS_SECRET", "password", "x-auth"]))
    assert not any(map(names_a_secret, ["OMP_NUM_THREADS", "eos_token", "--max-new-tokens", "tap"]))
