"""Traces of requests: lists of (milliseconds, key, weight), the same for every limiter.

They are short, because the limiters read real clocks. Fixed windows of some packages begin at multiples of their
length, and those of others with the first request of a key. So a trace begins at a multiple, and where the boundary
matters, with a request of its key. What decides about a kind of result is a tenth of a second or more from where it
would turn, because a busy machine delays requests.
"""

import random
from dataclasses import dataclass

WINDOW = 2


@dataclass
class Trace:
    name: str
    requests: list
    limit: int = 10
    # The trace is played by as many processes at once.
    processes: int = 1
    # A denied request is repeated when it has waited as told, and the next request of its key waits for it.
    repeated: bool = False
    # Milliseconds, and the seconds by which the clock is set then.
    step: tuple | None = None


def every(interval, first, last, key, weight=1):
    return [(instant, key, weight) for instant in range(first, last, interval)]


def steady():
    """Just below the limit."""
    return every(210, 50, 6000, "steady")


def boundary():
    """The limit before the end of a window; then requests at once, spread, or at once when the next window is old."""
    keys = ("burst", "spread", "late")
    before = [request for key in keys for request in every(1, 20, 21, key) + every(10, 1700, 1790, key)]
    return before + every(10, 2150, 2250, "burst") + every(100, 2150, 3650, "spread") + every(10, 3550, 3650, "late")


def weights():
    """Of a limit of 100: tens above the rate; and a ten that does not fit, between requests that do."""
    edge = every(10, 100, 190, "edge", 10) + [(200, "edge", 5), (260, "edge", 10), (300, "edge", 5)]
    tens = every(150, 100, 1900, "tens", 10) + every(150, 2500, 4000, "tens", 10)
    return tens + edge + [(3000, "edge", 50), (3100, "edge", 60), (3200, "edge", 50)]


def bursts(rng):
    """Bursts at random, of ones or with some twos; and a two that does not fit, between ones that do."""
    requests = every(2, 500, 518, "two") + [(530, "two", 2), (545, "two", 1)]
    for key in ("a", "b", "mixed"):
        instant = rng.randrange(500)
        while instant < 6000:
            weights = (1, 1, 1, 2) if key == "mixed" else (1,)
            requests += [(instant + rng.randrange(40), key, rng.choice(weights)) for _ in range(rng.randint(1, 9))]
            instant += int(rng.expovariate(1 / 500)) + 50
    return requests


def shared():
    """What each of four processes asks: half of the limit at once, three times."""
    return [request for instant in (100, 1100, 2400) for request in every(20, instant, instant + 100, "shared")]


def waits():
    """Clients that wait: for single units, and for several."""
    ones = every(30, 50, 350, "ones") + every(1, 700, 705, "ones")
    several = every(100, 50, 1050, "several") + [(1200, "several", 4), (1201, "several", 3)]
    return ones + several


def forward():
    """The limit, and once more after the clock has been set."""
    return every(10, 200, 300, "forward") + every(10, 1000, 1100, "forward")


def back():
    """The limit; and after the clock has been set, the limit at once, or single requests after the window."""
    spent = [request for key in ("again", "later") for request in every(3, 200, 230, key)]
    return spent + every(3, 1000, 1030, "again") + every(500, 2450, 6500, "later")


def traces(seed):
    rng = random.Random(seed)
    return [
        Trace("steady", steady()),
        Trace("boundary", boundary()),
        Trace("weights", weights(), limit=100),
        Trace("bursts", bursts(rng)),
        Trace("processes", shared(), processes=4),
        Trace("waits", waits(), repeated=True),
        Trace("forward", forward(), step=(700, WINDOW)),
        Trace("back", back(), step=(700, -5 * WINDOW)),
    ]
