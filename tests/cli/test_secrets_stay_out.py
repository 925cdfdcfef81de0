"""Secrets in the environment, on command lines and in outputs are in no file that is written."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.toy_model import save_toy
from verify.cli.app import app

BODY = "Q7wErTyUiOpAsDfGhJkLzXcVbNm012345678"
ENVIRONMENT = {
    "HF_TOKEN": f"hf_{BODY}",
    "GITHUB_TOKEN": f"ghp_{BODY}",
    "OPENAI_API_KEY": f"sk-proj-{BODY}",
    "AWS_ACCESS_KEY_ID": "AKIAQ7WERTYUIOPASDFG",
    "AWS_SECRET_ACCESS_KEY": "wJalr/XUtnFEMI+K7MDENG/bPxRfiCYplanted",
    "SERVICE_PASSWORD": "plain-words-planted",
    "PRIVATE_NOTE": "a-note-of-no-known-shape",
    # Names of the allow-list with values that nobody should have put there.
    "VLLM_ATTENTION_BACKEND": f"glpat-{BODY}",
    "PYTORCH_TUNABLEOP_ENABLED": f"password={BODY}",
    "LD_LIBRARY_PATH": f"/opt/https://user:{BODY}@host/lib",
    "CUBLAS_WORKSPACE_CONFIG": f"Bearer {BODY}",
    "OMP_SCHEDULE": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{BODY}",
}
SECRETS = [
    BODY, "AKIAQ7WERTYUIOPASDFG", "wJalr/XUtnFEMI+K7MDENG/bPxRfiCYplanted", "plain-words-planted",
    "a-note-of-no-known-shape", "eyJzdWIiOiIxIn0",
]  # fmt: skip
# A command may print all that it knows; only a value without any sign of a secret would pass then.
NOISY = "import os, sys; del os.environ['PRIVATE_NOTE']; print(dict(os.environ), sys.argv); raise SystemExit(1)"
GATES = f"""
version = 1
[[gate]]
name = "noisy"
kind = "command"
command = ["python", "-c", {json.dumps(NOISY)}, "--token", "plain-words-planted", "sk-{BODY}"]
[[gate]]
name = "identity"
kind = "tokens"
report = "out/report.json"
"""


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def leaks(paths: list[Path]) -> list[str]:
    held = {path: path.read_bytes() for path in paths}
    return [f"{p}: {secret}" for p, d in held.items() for secret in SECRETS if secret.encode() in d]


@pytest.mark.slow
def test_no_secret_is_written(tmp_path, monkeypatch):
    model = save_toy(tmp_path / "model")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def verify(*arguments):
        extra = ["--hf-token", ENVIRONMENT["SERVICE_PASSWORD"], f"https://u:{BODY}@host/"]
        monkeypatch.setattr(sys, "argv", ["verify", *map(str, arguments), *extra])
        return CliRunner().invoke(app, list(map(str, arguments)))

    for name in ("a", "b"):
        done = verify(
            "capture", "--model", model, "--prompt", "hello", "--tokens", 2,
            "--out", f"runs/{name}",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
    assert verify("bisect", "runs/a", "runs/b", "--out", "out").exit_code == 0
    # Written by hand and never by us; the ledger stores it as an artifact.
    gates = tmp_path / "gates" / "gates.toml"
    gates.parent.mkdir()
    gates.write_text(GATES)
    (gates.parent / "out").symlink_to(work / "out")
    chosen = ("--config", gates, "--ledger", work / "ledger")
    assert verify("gate", "run", *chosen).exit_code == 1
    reason = f"the key sk-{BODY} was rotated"
    done = verify("gate", "waive", "noisy", "--reason", reason, "--by", f"hf_{BODY}", *chosen)
    assert done.exit_code == 0, done.output
    verify("ledger", "add", "ledger", "--text", f"Bearer {BODY}")
    for form in ("text", "json", "junit", "github"):
        text = verify("gate", "status", "--format", form, *chosen).output
        (work / f"status.{form}").write_text(text)
    (work / "env.json").write_text(verify("env", "--json").output)
    (work / "inspect.json").write_text(verify("inspect", "runs/a", "--json").output)

    written = files(work)
    names = {path.name for path in written}
    assert {"manifest.json", "report.json", "report.html", "entries.jsonl", "env.json"} <= names
    assert leaks(written) == []
    manifest = json.loads((work / "runs/a/manifest.json").read_bytes())
    assert manifest["command"][-3:] == ["--hf-token", "[redacted]", "https://[redacted]@host/"]
    assert manifest["env"]["variables"]["VLLM_ATTENTION_BACKEND"] == "[redacted]"
    assert verify("ledger", "check", "ledger").exit_code == 0


def test_a_leak_would_be_seen(tmp_path):
    (tmp_path / "f").write_text(f"x {BODY} y")
    assert leaks(files(tmp_path)) == [f"{tmp_path / 'f'}: {BODY}"]
