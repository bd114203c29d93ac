// Clients that must wait as told: `clients.mjs HTTP HTTPS`, the addresses of the server. Each asks twice for each cause
// of a refusal, with at most five retries, and prints what it got as a line of JSON.
import axios from 'axios'
import axiosRetry from 'axios-retry'
import got from 'got'
import ky from 'ky'
import pRetry from 'p-retry'
import { Agent, RetryAgent, fetch, request } from 'undici'
import { version } from './packages.mjs'

const [http, https] = process.argv.slice(2)
const retries = 5

const axios1 = axios.create({ proxy: false })
axiosRetry(axios1, { retries })
const axios2 = axios.create({ proxy: false, httpVersion: 2 })
axiosRetry(axios2, { retries })
const agent1 = new Agent({ allowH2: false })
const agent2 = new Agent({ allowH2: true })
const retryAgent1 = new RetryAgent(agent1, { maxRetries: retries })
const retryAgent2 = new RetryAgent(agent2, { maxRetries: retries })

async function undici(url, dispatcher) {
  const { statusCode, body } = await request(url, { dispatcher })
  return [statusCode, await body.text()]
}

// p-retry reads no field: its option `onFailedAttempt` may wait, beside its own backoff.
function withPRetry(url, onFailedAttempt) {
  return pRetry(async () => {
    const response = await fetch(url, { dispatcher: agent1 })
    const body = await response.text()
    if (!response.ok) throw Object.assign(new Error(`status ${response.status}`), { response })
    return [response.status, body]
  }, { retries, minTimeout: 100, factor: 1, onFailedAttempt })
}

async function asTold({ error }) {
  const seconds = Number(error.response.headers.get('retry-after'))
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000))
}

// The client's package, how it is set up, the address, and a request.
const clients = [
  ['got', 'default', http, (url) => got(url, { retry: { limit: retries } }).then((r) => [r.statusCode, r.body])],
  ['got', 'default', https, (url) =>
    got(url, { http2: true, retry: { limit: retries } }).then((r) => [r.statusCode, r.body])],
  ['ky', 'default', http, (url) =>
    ky(url, { retry: retries }).then(async (r) => [r.status, await r.text()])],
  ['ky', 'fetch of undici', https, (url) =>
    ky(url, { retry: retries, fetch: (input) => fetch(input.url, { dispatcher: agent2 }) })
      .then(async (r) => [r.status, await r.text()])],
  ['axios-retry', 'default', http, (url) => axios1.get(url).then((r) => [r.status, r.data])],
  ['axios-retry', 'default', https, (url) => axios2.get(url).then((r) => [r.status, r.data])],
  ['axios-retry', 'exponentialDelay', http, (url) =>
    axios1.get(url, { 'axios-retry': { retries, retryDelay: axiosRetry.exponentialDelay } })
      .then((r) => [r.status, r.data])],
  ['undici', 'RetryAgent', http, (url) => undici(url, retryAgent1)],
  ['undici', 'RetryAgent', https, (url) => undici(url, retryAgent2)],
  ['p-retry', 'onFailedAttempt', http, (url) => withPRetry(url, asTold)],
  ['p-retry', 'default', http, (url) => withPRetry(url)],
]

async function run([client, setup, address, get], number) {
  for (const cause of ['429', '503', 'outage']) {
    const path = `/${cause}/node-${number}`
    const answers = []
    for (let time = 0; time < 2; time += 1) {
      try {
        answers.push(await get(address + path))
      } catch (error) {
        answers.push([0, String(error)])
      }
    }
    console.log(JSON.stringify({ client, version: version(client), setup, cause, path, answers }))
  }
}

await Promise.all(clients.map(run))
// Connections of the agents stay open.
process.exit()
