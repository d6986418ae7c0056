const ARRAYS = {
  float: Float32Array, double: Float64Array,
  int8_t: Int8Array, int16_t: Int16Array, int32_t: Int32Array, int64_t: BigInt64Array,
  uint8_t: Uint8Array, uint16_t: Uint16Array, uint32_t: Uint32Array, uint64_t: BigUint64Array,
};
const LINE = 64, PAGE = 65536, STACK = 1 << 18;
// A worker shares the memory, has a stack of its own, and takes part in the work of each call.
const WORKER = `
const begin = ({ module, memory, stack, pool }) => {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.__stack_pointer.value = stack;
  exports.hloom_web_worker(pool);
};
if (typeof require === "function") require("node:worker_threads").parentPort.once("message", begin);
else onmessage = ({ data }) => begin(data);`;

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  const url = new URL(source, import.meta.url);
  if (url.protocol === "file:" && typeof process !== "undefined") {
    return (await import("node:fs/promises")).readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

/**
 * Instantiates the library; `source` is the URL or the content of its .wasm file.
 *
 * Returns an object with a function for each module. `f({name: array, ..})` returns its results by name. Without
 * copies: fill the views in `f.arrays`, call `f.run()`, and read the views of the results. A library that is built for
 * several threads has as many, or `threads`, in Node and in pages that are isolated (`crossOriginIsolated`); elsewhere one.
 */
export async function load(source = WASM, { threads = POOL?.threads } = {}) {
  const shared = POOL && new WebAssembly.Memory({ initial: POOL.initial, maximum: POOL.maximum, shared: true });
  const { module, instance } = await WebAssembly.instantiate(await bytesOf(source), { env: { memory: shared } });
  const { memory = shared, __heap_base } = instance.exports;
  let end = __heap_base.value;
  const place = (bytes) => {
    const start = Math.ceil(end / LINE) * LINE;
    end = start + bytes;
    return start;
  };
  const plans = FUNCTIONS.map((f) => ({
    f,
    starts: [...f.inputs, ...f.outputs].map((a) => place(a.count * ARRAYS[a.type].BYTES_PER_ELEMENT)),
    scratch: place(f.scratch),
  }));
  const count = POOL && (globalThis.crossOriginIsolated ?? true) ? threads : 1;
  const pool = count > 1 ? place(POOL.bytes + count * POOL.share) : 0;
  const stacks = Array.from({ length: count - 1 }, () => place(STACK) + STACK);
  const missing = end - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
  if (pool) instance.exports.hloom_web_pool(pool, count);
  for (const stack of stacks) (await newWorker()).postMessage({ module, memory, stack, pool });
  return Object.fromEntries(plans.map((plan) => [plan.f.name, callable(plan, instance.exports, memory.buffer, pool)]));
}

async function newWorker() {
  if (globalThis.process?.versions?.node === undefined) return new Worker(URL.createObjectURL(new Blob([WORKER], { type: "text/javascript" })));
  const made = new (await import("node:worker_threads")).Worker(WORKER, { eval: true });
  made.unref();
  return made;
}

function callable({ f, starts, scratch }, exports, buffer, pool) {
  const all = [...f.inputs, ...f.outputs];
  const arrays = Object.fromEntries(all.map((a, k) => [a.name, new ARRAYS[a.type](buffer, starts[k], a.count)]));
  const run = () => {
    const status = exports[f.name](...starts, scratch, pool);
    if (status !== 0) throw new Error(`${f.name} failed with status ${status}`);
  };
  const call = (inputs = {}) => {
    for (const name of Object.keys(inputs)) {
      if (!f.inputs.some((a) => a.name === name)) throw new TypeError(`${f.name} has no input ${name}`);
    }
    for (const { name, count, shape } of f.inputs) {
      if (inputs[name]?.length !== count) {
        throw new TypeError(`${f.name}: ${name} is ${shape}, ${count} elements, got ${inputs[name]?.length ?? "nothing"}`);
      }
      arrays[name].set(inputs[name]);
    }
    run();
    return Object.fromEntries(f.outputs.map((a) => [a.name, arrays[a.name].slice()]));
  };
  return Object.assign(call, { arrays, run, inputs: f.inputs, outputs: f.outputs });
}
