"""Arguments as a report shows them."""

from __future__ import annotations

import pytest

from eureka.capture.secrets import without_secrets


@pytest.mark.parametrize(
    "arguments",
    [
        ["--token", "SECRET"],
        ["--token=SECRET"],
        ["--wandb-api-key", "SECRET"],
        ["--wandbApiKey", "SECRET"],
        ["--apikey=SECRET"],
        ["-password", "SECRET"],
        ["--passwd", "SECRET with, commas & more"],
        ["--password=a, SECRET"],
        ["+logger.wandb.api_key=SECRET"],
        ["AWS_SECRET_ACCESS_KEY=SECRET"],
        ["--secret-name", "SECRET"],
        ["--credentials", "SECRET"],
        ["--auth", "me:SECRET"],
        ["--token", "-SECRET-SECRET-SECRET-SECRET-SECRET"],
        ["--header", "Authorization: Bearer SECRET"],
        ["--header", "Bearer SECRETSECRET"],
        ["--url", "postgresql://me:SECRET@host/db"],
        ["--url", "postgresql://me:p@SECRET@host/db"],
        ["https://SECRET@github.com/me/repo"],
        ["--url=https://host/?page=1&access_token=SECRET"],
        ["--url=https://host/?token=SECRET"],
        ["--curl", "host --data token=SECRET"],
        ["--extra", '{"api_key": "SECRET"}'],
        ["hf_SECRETSECRETSECRET"],
        ["--name", "sk-proj-SECRETSECRETSECRET"],
    ],
)
def test_a_secret_is_not_shown(arguments: list[str]) -> None:
    shown = without_secrets(["--lr", "3e-4", *arguments, "--steps", "3"])
    assert "SECRET" not in " ".join(shown).replace("AWS_SECRET_ACCESS_KEY=", "")
    assert "***" in " ".join(shown)
    assert shown[:2] + shown[-2:] == ["--lr", "3e-4", "--steps", "3"]
    assert len(shown) == len(arguments) + 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokenizer", "gpt2"],
        ["--max-tokens", "100", "--num_tokens=5", "tokens=3"],
        ["--author", "x", "--authors=y"],
        ["--pad-token", "<pad>", "mask_token_id=3", "--token-dim", "64"],
        ["--sort-key", "length", "--key=x", "--keyboard", "x"],
        ["--url", "https://host:8080/path?page=2", "user@host"],
        ["--use-auth-token", "--lr", "3e-4"],
        ["--data", "C:/x", "optim.lr=3e-4", "{a: 1, b: 2}"],
        ["--name", "sk-short", "--task", "ask-me-something-long"],
        ["--notes", "basic training, the bearer of news"],
        [],
    ],
)
def test_what_is_no_secret_stays(arguments: list[str]) -> None:
    assert without_secrets(arguments) == arguments
