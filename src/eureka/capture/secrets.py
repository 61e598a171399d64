"""Command-line arguments as a report may show them: without tokens and passwords."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"

SECRET_WORDS = {
    *(
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "secrets",
        "apikey",
        "accesskey",
        "authtoken",
        "apitoken",
        "accesstoken",
    ),
    *("auth", "authentication", "authorization", "credential", "credentials"),
}
KEY_OWNERS = {"api", "access", "private", "secret", "auth", "account", "license", "signing", "encryption", "service"}
"""`--api-key` is a secret, `--sort-key` is not."""
VOCABULARY = {
    "pad",
    "eos",
    "bos",
    "cls",
    "sep",
    "unk",
    "mask",
    "special",
    "start",
    "end",
    "stop",
    "image",
    "class",
    "next",
    "per",
}
"""`--pad-token` is a word of a vocabulary."""
SECRET_VALUE = re.compile(
    r"\b(?:hf_\w{8,}|sk-[\w-]{8,}|gh[pousr]_\w{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[abeprs]-[\w-]{8,}|AKIA[0-9A-Z]{12,}"
    r"|wandb_v\d_\w{8,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]+)"
)
URL_USER = re.compile(r"(?<=://)[^/?#\s]+@")
BEARER = re.compile(r"\b(bearer)\s+\S{8,}", re.IGNORECASE)
NAME = re.compile(r"""([A-Za-z][\w.\-]*)["']?\s*(?:=|:(?!//))\s*["']?(?:(?:bearer|basic)\s+)?""", re.IGNORECASE)
VALUE = re.compile(r"""[^\s,;&}"']+""")
OPTION = re.compile(r"--?[A-Za-z][\w.\-]*(=.*)?", re.DOTALL)
MAX_OPTION_LENGTH = 30
"""What begins with a dash behind `--token` and is longer may be the token itself."""


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Replace the values of arguments that are named or shaped like secrets with ***.

    >>> without_secrets(["--lr", "3e-4", "--hub-token", "abc", "--api_key=abc", "+wandb.api_key=abc", "password=abc"])
    ['--lr', '3e-4', '--hub-token', '***', '--api_key=***', '+wandb.api_key=***', 'password=***']
    >>> without_secrets(["--tokenizer", "gpt2", "--max-tokens", "100", "--author", "x", "--num_tokens=5", "--pad-token", "0"])
    ['--tokenizer', 'gpt2', '--max-tokens', '100', '--author', 'x', '--num_tokens=5', '--pad-token', '0']
    >>> without_secrets(["hf_abcdefghijklmnop", "https://me:abc@host/path?token=abc&page=2", "logger={name:x,api_key:abc}"])
    ['***', 'https://***@host/path?token=***&page=2', 'logger={name:x,api_key:***}']
    """
    shown: list[str] = []
    names_secret = False  # whether the argument before is an option whose value this is
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        is_option = OPTION.fullmatch(argument) is not None
        if names_secret and not (is_option and len(key) <= MAX_OPTION_LENGTH):
            shown.append(HIDDEN)
        elif equals and re.fullmatch(r"[+\-]{0,2}[A-Za-z][\w.\-/@]*", key) and _is_secret(key):
            shown.append(f"{key}={HIDDEN}")  # all of it: a password may hold any character
        else:
            text = URL_USER.sub(f"{HIDDEN}@", SECRET_VALUE.sub(HIDDEN, argument))
            text = BEARER.sub(rf"\1 {HIDDEN}", text)
            position = 0
            while name := NAME.search(text, position):  # in URLs, JSON and Hydra's dictionaries
                position = name.end()
                if _is_secret(name[1]) and (value := VALUE.match(text, position)):
                    text = f"{text[:position]}{HIDDEN}{text[value.end() :]}"
                    position += len(HIDDEN)
            shown.append(text)
        names_secret = is_option and not equals and _is_secret(argument)
    return shown


def _is_secret(name: str) -> bool:
    """Whether a name says that its value is a secret.

    >>> [_is_secret(name) for name in ("--hfToken", "AWS_SECRET_ACCESS_KEY", "--token-dim", "--sort-key", "mask_token")]
    [True, True, False, False, False]
    """
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words:
        return False
    *owners, last = words
    owner = owners[-1] if owners else ""
    is_key = last in ("key", "keys") and owner in KEY_OWNERS
    is_token = last == "token" and owner not in VOCABULARY
    return is_key or is_token or (last == "tokens" and owner in KEY_OWNERS) or bool({*words[-2:]} & SECRET_WORDS)
