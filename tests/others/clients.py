"""Clients that must wait as told: `clients.py HTTP HTTPS CERTIFICATE`, the addresses of the server. Each asks twice for
each cause of a refusal, with at most five retries, and prints what it got as a line of JSON.
"""

import asyncio
import json
import ssl
import sys
from importlib.metadata import version

import httpx
import tenacity
from aiohttp_retry import ExponentialRetry, RetryClient
from httpx_retries import Retry, RetryTransport

HTTP, HTTPS, CERTIFICATE = sys.argv[1:]
TRUST = ssl.create_default_context(cafile=CERTIFICATE)
RETRIES = 5


def httpx_retries(two):
    transport = httpx.AsyncHTTPTransport(verify=TRUST, http1=not two, http2=two)
    client = httpx.AsyncClient(transport=RetryTransport(transport=transport, retry=Retry(total=RETRIES)))

    async def get(url):
        response = await client.get(url)
        return response.status_code, response.text

    return get


def retry_after(error):
    """The example in the documentation of `wait_exception`."""
    if isinstance(error, httpx.HTTPStatusError):
        return float(error.response.headers.get("Retry-After", "1"))
    return 60.0


def with_tenacity(two):
    client = httpx.AsyncClient(verify=TRUST, http1=not two, http2=two)

    @tenacity.retry(stop=tenacity.stop_after_attempt(RETRIES + 1), wait=tenacity.wait_exception(retry_after))
    async def get(url):
        response = await client.get(url)
        response.raise_for_status()
        return response.status_code, response.text

    return get


class AsTold(ExponentialRetry):
    def get_timeout(self, attempt, response=None):
        if response is not None and "Retry-After" in response.headers:
            return float(response.headers["Retry-After"])
        return super().get_timeout(attempt, response)


def aiohttp_retry(options):
    async def get(url):
        async with RetryClient(retry_options=options(attempts=RETRIES + 1, statuses={429})) as client:
            async with client.get(url) as response:
                return response.status, await response.text()

    return get


CLIENTS = [
    ("httpx-retries", "default", HTTP, httpx_retries(False)),
    ("httpx-retries", "default", HTTPS, httpx_retries(True)),
    ("tenacity", "wait_exception", HTTP, with_tenacity(False)),
    ("tenacity", "wait_exception", HTTPS, with_tenacity(True)),
    ("aiohttp-retry", "get_timeout", HTTP, aiohttp_retry(AsTold)),
    ("aiohttp-retry", "default", HTTP, aiohttp_retry(ExponentialRetry)),
]


async def run(number, client, setup, address, get):
    for cause in "429", "503", "outage":
        path = f"/{cause}/python-{number}"
        answers = []
        for _ in range(2):
            try:
                answers.append(await get(address + path))
            except Exception as error:
                answers.append((0, repr(error)))
        row = {"client": client, "version": version(client), "setup": setup, "cause": cause, "path": path}
        print(json.dumps(row | {"answers": answers}))


async def main():
    await asyncio.gather(*(run(number, *client) for number, client in enumerate(CLIENTS)))


asyncio.run(main())
