// Limiters that are packages of npm: `player.mjs PORT`, the port of a local Redis. Reads requests as lines of JSON, and
// writes an answer to each. Requests that come together are asked together.
import { createInterface } from 'node:readline'
import { Ratelimit } from '@upstash/ratelimit'
import { Redis } from 'ioredis'
import { RateLimiterRedis, RateLimiterRes } from 'rate-limiter-flexible'

const redis = new Redis(Number(process.argv[2]))

// The calls of Upstash's client that its limiters make. Other servers refuse the flag in the first line of its scripts.
const upstash = {
  eval: (script, keys, args) => redis.eval(script.replace(/^#!lua.*\n/, ''), keys.length, ...keys, ...args),
  evalsha: async () => {
    throw new Error('NOSCRIPT: no script has been loaded')
  },
}

const algorithms = {
  '@upstash/ratelimit fixedWindow': (limit, window) => Ratelimit.fixedWindow(limit, `${window} s`),
  '@upstash/ratelimit slidingWindow': (limit, window) => Ratelimit.slidingWindow(limit, `${window} s`),
  // The rate of the others that refill evenly, in the smallest steps.
  '@upstash/ratelimit tokenBucket': (limit, window) => Ratelimit.tokenBucket(1, `${(window * 1000) / limit} ms`, limit),
}

function upstashLimiter(name, limit, window) {
  const limiter = new Ratelimit({ redis: upstash, limiter: algorithms[name](limit, window), prefix: name })
  return async (key, weight) => {
    const { success, reset, reason } = await limiter.limit(key, { rate: weight })
    if (reason === 'timeout') throw new Error('no answer in time')
    return { allowed: success, wait: Math.max(0, reset - Date.now()) }
  }
}

function flexibleLimiter(name, limit, window) {
  const limiter = new RateLimiterRedis({ storeClient: redis, points: limit, duration: window, keyPrefix: name })
  return async (key, weight) => {
    try {
      await limiter.consume(key, weight)
      return { allowed: true }
    } catch (denied) {
      if (!(denied instanceof RateLimiterRes)) throw denied
      return { allowed: false, wait: denied.msBeforeNext }
    }
  }
}

const limiters = new Map()

function limiterOf({ limiter: name, limit, window }) {
  const id = `${name} ${limit} ${window}`
  if (!limiters.has(id)) {
    const make = name === 'rate-limiter-flexible' ? flexibleLimiter : upstashLimiter
    limiters.set(id, make(name, limit, window))
  }
  return limiters.get(id)
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line)
  limiterOf(request)(request.key, request.weight)
    .catch((error) => ({ error: String(error) }))
    .then((answer) => console.log(JSON.stringify({ id: request.id, ...answer })))
}
process.exit()
