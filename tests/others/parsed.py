"""Fields by http-sfv and ratelimit-headers: `parsed.py < cases`, where `expected` has added the values."""

import json
import sys
import time
from collections import Counter
from importlib.metadata import version

import http_sfv
import ratelimit_headers

# The longest wait that still ends in a year that a date can have.
LONGEST = 100_000_000


def typed(value):
    if isinstance(value, bool):
        return {"boolean": value}
    if isinstance(value, int):
        return {"integer": value}
    if isinstance(value, http_sfv.Token):
        return {"token": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    assert isinstance(value, str), repr(value)
    return {"string": value}


def item(parsed):
    return [typed(parsed.value), [[key, typed(value)] for key, value in parsed.params.items()]]


def read(kind, text):
    """What http-sfv makes of the text, and what it would write for it."""
    structure = {"list": http_sfv.List, "dictionary": http_sfv.Dictionary, "item": http_sfv.Item}[kind]()
    structure.parse(text.encode())
    if kind == "list":
        value = [item(member) for member in structure]
    elif kind == "dictionary":
        value = [[key, item(member)] for key, member in structure.items()]
    else:
        value = item(structure)
    return value, str(structure)


def structured(case, style, count):
    """The complaints of http-sfv about a style of a case."""
    fields, expected = case["styles"][style], case["expected"][style]
    if fields.keys() != expected.keys():
        yield f"has the fields {sorted(fields)}, expected {sorted(expected)}"
        return
    for name, lines in fields.items():
        text = ", ".join(lines)
        (kind, value), = expected[name].items()
        if kind == "digits":
            if text != value:
                yield f"{name}: {text}, expected {value}"
            continue
        count["http-sfv"] += 1
        try:
            parsed, written = read(kind, text)
        except Exception as error:
            yield f"{name}: {text}: {error}"
            continue
        if parsed != value:
            yield f"{name}: {text}: parsed {parsed}, expected {value}"
        elif written != text:
            yield f"{name}: {text}: written {written}"


def plain(expected, name):
    """The number of a field that is one."""
    if name not in expected:
        return None
    (kind, value), = expected[name].items()
    return int(value) if kind == "digits" else value[0]["integer"]


def older(case, style, count):
    """The complaints of ratelimit-headers, for the styles that it documents."""
    prefix = {"draft-06": "ratelimit", "x-ratelimit-epoch": "x-ratelimit"}.get(style)
    fields, expected = case["styles"][style], case["expected"][style]
    if prefix is None or f"{prefix}-limit" not in fields:
        return
    count["ratelimit-headers"] += 1
    before = time.time()
    state = ratelimit_headers.parse(response_headers={name: lines[0] for name, lines in fields.items()})
    wanted = plain(expected, f"{prefix}-limit"), plain(expected, f"{prefix}-remaining")
    # It reads numbers as floats.
    if (state.limit, state.remaining) != tuple(int(float(number)) for number in wanted):
        yield f"limit and remaining are {state.limit}, {state.remaining}, expected {wanted}"
    reset = plain(expected, f"{prefix}-reset")
    if style == "x-ratelimit-epoch":
        # It takes no time after 2106 for one.
        if reset is not None and reset < 2**32 and state.reset.timestamp() != reset:
            yield f"the reset is {state.reset}, expected {reset}"
    elif reset < LONGEST:
        if state.retry_after != reset or not 0 <= state.reset.timestamp() - before - reset < 2:
            yield f"the wait is {state.retry_after} until {state.reset}, expected {reset}"


count, faults = Counter(), []
for line in sys.stdin:
    case = json.loads(line)
    for style in case["styles"]:
        for judge in structured, older:
            faults += [f"{case['id']}, {style}: {fault}" for fault in judge(case, style, count)]
for fault in faults[:20]:
    print(fault, file=sys.stderr)
packages = {"http-sfv": "fields", "ratelimit-headers": "responses"}
for package, what in packages.items():
    print(f"{package} {version(package)}: {count[package]} {what}")
if faults or not all(count[package] for package in packages):
    sys.exit(f"{len(faults)} faults")
