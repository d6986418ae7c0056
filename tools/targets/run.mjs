/** Runs the function `f` of a library on the bytes of its arguments: the bytes of the results, and the best time. */
export async function run(module, data, seconds) {
  const { load } = await import(module);
  const { f } = await load();
  const bytes = (a) => new Uint8Array(f.arrays[a.name].buffer, f.arrays[a.name].byteOffset, f.arrays[a.name].byteLength);
  let at = 0;
  for (const a of f.inputs) bytes(a).set(data.subarray(at, (at += bytes(a).length)));
  f.run();
  const content = new Uint8Array(f.outputs.reduce((size, a) => size + bytes(a).length, 0));
  let end = 0;
  for (const a of f.outputs) {
    content.set(bytes(a), end);
    end += bytes(a).length;
  }
  let best = Infinity;
  for (let calls = 1, stop = performance.now() + 1000 * seconds; performance.now() < stop; ) {
    const start = performance.now();
    for (let k = 0; k < calls; k++) f.run();
    const taken = performance.now() - start;
    if (taken < 10) calls *= 2;
    else best = Math.min(best, taken / calls / 1000);
  }
  return { content, best };
}

// In Node: node run.mjs MODULE ARGUMENTS RESULTS SECONDS
if (typeof process !== "undefined" && process.argv[2]) {
  const fs = await import("node:fs"), url = await import("node:url");
  const [, , module, from, to, seconds] = process.argv;
  const { content, best } = await run(url.pathToFileURL(module), fs.readFileSync(from), Number(seconds));
  fs.writeFileSync(to, content);
  console.log(Number(seconds) ? best : 0);
}
