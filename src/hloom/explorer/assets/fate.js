"use strict";
// What became of instructions: of one as given, pass by pass, until it is part of a kernel or gone.

// The steps of an instruction: the pass, its number, what took the instruction's place, the rules that put it there, and
// the computation to which it moved; and the name in the end, "" if nothing took its place.
function fateOf({ passes }, name) {
  const steps = [];
  let last = name;
  (passes || []).forEach((pass, number) => {
    const [next, rules, moved] = (pass.replacedBy ||= new Map(pass.replaced.map(([old, ...rest]) => [old, rest]))).get(last) || [];
    if (next === undefined) return;
    steps.push({ pass: pass.name, number, name: last, next, rules, moved });
    last = next;
  });
  return { steps, last };
}

// The instructions as given from which those of the optimised graph were made, by name.
function originsOf(source) {
  if (!source.origins) {
    source.origins = new Map();
    for (const { replaced } of source.passes || []) for (const [old, next] of replaced) if (next && next !== old && !source.origins.has(next)) source.origins.set(next, source.origins.get(old) || old);
  }
  return source.origins;
}

// The instruction of the optimised graph that computes one of the module as given; null if none does.
function kernelOf(name, source = data()) {
  const { last } = fateOf(source, name);
  if (!last) return null;
  const isThere = source.optimized.computations.some(({ instructions }) => instructions.some((each) => each.name === last));
  return fusionOf(last, source) || (isThere ? last : null);
}

// The steps as a list, in which `pick` shows a pass.
function fateList(source, name, pick) {
  const { steps, last } = fateOf(source, name), found = last && kernelOf(name, source);
  const change = ({ name: now, next, moved }) => (moved ? `%${now} moved into ${moved}` : next === now ? `%${now} changed` : next ? `%${now} gave way to %${next}` : `%${now} was removed`);
  return h("section", {}, h("h2", {}, `What became of %${name}`), h("ol", {}, ...steps.map((step) => h("li", {}, linkTo(`${step.number + 1}. ${step.pass}`, () => pick(step.number)),
    ": ", change(step), step.rules ? h("span", { class: "soft" }, ` by ${step.rules}`) : null))),
    h("p", {}, ...(!last ? ["It is not in the optimised graph."] : found === last ? ["In the end it is an instruction of its own: ", linkTo(`%${last}`, () => show(last))]
      : found ? [`In the end %${last} is computed in `, linkTo(`%${found}`, () => show(found))] : ["It is not in the optimised graph."])));
}
