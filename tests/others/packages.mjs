import { readFileSync } from 'node:fs'

// The version of an installed package, which few packages export.
export function version(name) {
  const file = new URL(`node_modules/${name}/package.json`, import.meta.url)
  return JSON.parse(readFileSync(file, 'utf8')).version
}
