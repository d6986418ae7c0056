const ARRAYS = {
  float: Float32Array, double: Float64Array,
  int8_t: Int8Array, int16_t: Int16Array, int32_t: Int32Array, int64_t: BigInt64Array,
  uint8_t: Uint8Array, uint16_t: Uint16Array, uint32_t: Uint32Array, uint64_t: BigUint64Array,
};
const LINE = 64, PAGE = 65536;

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
 * copies: fill the views in `f.arrays`, call `f.run()`, and read the views of the results.
 */
export async function load(source = WASM) {
  const { instance } = await WebAssembly.instantiate(await bytesOf(source), {});
  const { memory, __heap_base } = instance.exports;
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
  const missing = end - memory.buffer.byteLength;
  if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
  return Object.fromEntries(plans.map((plan) => [plan.f.name, callable(plan, instance.exports, memory.buffer)]));
}

function callable({ f, starts, scratch }, exports, buffer) {
  const all = [...f.inputs, ...f.outputs];
  const arrays = Object.fromEntries(all.map((a, k) => [a.name, new ARRAYS[a.type](buffer, starts[k], a.count)]));
  const run = () => {
    const status = exports[f.name](...starts, scratch, 0);
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
