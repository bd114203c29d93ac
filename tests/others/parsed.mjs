// Fields by structured-headers and ratelimit-header-parser: `parsed.mjs < cases`, with the values of `expected`.
import { createInterface } from 'node:readline'
import { isDeepStrictEqual } from 'node:util'
import { parseRateLimit } from 'ratelimit-header-parser'
import * as sfv from 'structured-headers'
import { version } from './packages.mjs'

// ratelimit-header-parser takes a longer wait for a time since the epoch.
const LONGEST = 1e9

function typed(value) {
  if (typeof value === 'boolean') return { boolean: value }
  if (Number.isInteger(value)) return { integer: value }
  if (typeof value === 'string') return { string: value }
  if (value instanceof sfv.Token) return { token: value.toString() }
  if (value instanceof ArrayBuffer) return { bytes: Buffer.from(value).toString('hex') }
  throw new TypeError(`no value of our fields: ${value}`)
}

function item([value, parameters]) {
  return [typed(value), [...parameters].map(([key, value]) => [key, typed(value)])]
}

// What structured-headers makes of the text, and what it would write for it.
function read(kind, text) {
  switch (kind) {
    case 'list': {
      const list = sfv.parseList(text)
      return [list.map(item), sfv.serializeList(list)]
    }
    case 'dictionary': {
      const dictionary = sfv.parseDictionary(text)
      return [[...dictionary].map(([key, member]) => [key, item(member)]), sfv.serializeDictionary(dictionary)]
    }
    default: {
      const parsed = sfv.parseItem(text)
      return [item(parsed), sfv.serializeItem(parsed)]
    }
  }
}

const counts = { 'structured-headers': 0, 'ratelimit-header-parser': 0 }
const faults = []

function structured(fields, expected, fault) {
  const [sent, wanted] = [fields, expected].map((fields) => Object.keys(fields).sort())
  if (!isDeepStrictEqual(sent, wanted)) return fault(`has the fields ${sent}, expected ${wanted}`)
  for (const [name, lines] of Object.entries(fields)) {
    const text = lines.join(', ')
    const [[kind, value]] = Object.entries(expected[name])
    if (kind === 'digits') {
      if (text !== value) fault(`${name}: ${text}, expected ${value}`)
      continue
    }
    counts['structured-headers'] += 1
    try {
      const [parsed, written] = read(kind, text)
      if (!isDeepStrictEqual(parsed, value)) fault(`${name}: ${text}: parsed ${JSON.stringify(parsed)}`)
      else if (written !== text) fault(`${name}: ${text}: written ${written}`)
    } catch (error) {
      fault(`${name}: ${text}: ${error.message}`)
    }
  }
}

// The number of a field that is one, or the first number of a list.
function first(field) {
  if (field === undefined) return undefined
  if (field.digits !== undefined) return Number(field.digits)
  return (field.item ?? field.list[0])[0].integer
}

// The styles that ratelimit-header-parser knows, with its default options.
function older(style, fields, expected, fault) {
  let values
  if (style === 'draft-07' && fields.ratelimit) {
    values = expected.ratelimit.dictionary.map(([, member]) => member[0].integer)
  } else {
    const prefix = style.startsWith('draft') ? 'ratelimit' : 'x-ratelimit'
    if (style === 'draft-11' || !fields[`${prefix}-remaining`]) return
    values = ['limit', 'remaining', 'reset'].map((name) => first(expected[`${prefix}-${name}`]))
  }
  counts['ratelimit-header-parser'] += 1
  const before = Date.now()
  const parsed = parseRateLimit(new Headers(Object.entries(fields).map(([name, lines]) => [name, lines.join(', ')])))
  const [limit, remaining, reset] = values
  if (parsed.limit !== limit || parsed.remaining !== remaining) {
    fault(`limit and remaining are ${parsed.limit}, ${parsed.remaining}, expected ${limit}, ${remaining}`)
  }
  if (reset === undefined || reset >= LONGEST && style !== 'x-ratelimit-epoch') return
  const at = style === 'x-ratelimit-epoch' ? reset * 1000 : before + reset * 1000
  const late = parsed.reset.getTime() - at
  if (!(late >= 0 && late < (style === 'x-ratelimit-epoch' ? 1 : 2000))) {
    fault(`the reset is ${parsed.reset}, expected ${new Date(at)}`)
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, styles, expected } = JSON.parse(line)
  for (const [style, fields] of Object.entries(styles)) {
    const fault = (text) => faults.push(`${id}, ${style}: ${text}`)
    structured(fields, expected[style], fault)
    older(style, fields, expected[style], fault)
  }
}

for (const fault of faults.slice(0, 20)) console.error(fault)
for (const [name, count] of Object.entries(counts)) {
  console.log(`${name} ${version(name)}: ${count} ${name === 'structured-headers' ? 'fields' : 'responses'}`)
}
if (faults.length > 0 || Object.values(counts).includes(0)) {
  console.error(`${faults.length} faults`)
  process.exit(1)
}
