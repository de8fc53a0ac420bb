//! Writes `docs/ops.md` from the op registry: each op with its sentence, shapes, dtypes, indices,
//! derivative and definition. The test fails if the file differs from the registry; with
//! `GIRIH_UPDATE` set (`make docs`) it writes the file.

use girih_ir::index_map::AxisIndex;
use girih_ir::ops::{Category, Derivative, Sample};
use girih_ir::{Class, DType, GraphBuilder, IndexMap, Iteration, NodeId, OpCode, TensorSpec};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Ops

Written by `make docs` from the definitions in `crates/ir/src/ops`; do not edit.

What a graph is made of. *Primitives* are what kernels are made from; *composites* are nodes of
their own with a definition in terms of other ops. Ops convert nothing: all operands but indices and
conditions have one dtype, and the functions that users call insert the casts (see `dtypes.md`).

*Indices* say which element of each operand an element of the result depends on, one letter per
index: in `i k, k j -> i j` of a matrix product, `k` is summed over. `1` marks an axis of one element
that is stretched.

*Factors* say the same without sizes. `(i j)` is an axis that two factors share, `i` the outer one.
A factor of which nothing is said is pointwise: a part of the operands gives that part of the
result. A part of a factor with an op gives a partial result, and the op combines the results of all
parts. A factor that is whole cannot be divided.
";

const CATEGORIES: &[Category] = &[
    Category::Leaf,
    Category::Elementwise,
    Category::Reduction,
    Category::Matmul,
    Category::Reshape,
    Category::Transpose,
    Category::Slice,
    Category::Concat,
    Category::Broadcast,
    Category::Index,
    Category::Library,
    Category::Control,
    Category::Composite,
];

/// The name of an index of the iteration space.
fn letter(dim: usize) -> String {
    let letters = b"ijklmnpqrstuvw";
    letters.get(dim).map_or(format!("i{dim}"), |&l| (l as char).to_string())
}

/// The index along one axis: `i`, `2*k+1`, or `1` for an axis of one element that is broadcast.
fn along(axis: &AxisIndex) -> String {
    let mut text = String::new();
    for &(dim, step) in &axis.terms {
        let sign = if step < 0 { "-" } else { "+" };
        let times = if step.abs() == 1 { String::new() } else { format!("{}*", step.abs()) };
        text += &format!("{sign}{times}{}", letter(dim));
    }
    match (axis.offset, axis.terms.is_empty()) {
        (0, true) => return "1".into(),
        (0, false) => {}
        (offset, _) if text.starts_with('-') => text = format!("{offset}{text}"),
        (offset, _) => text += &format!("{offset:+}"),
    }
    text.trim_start_matches('+').to_string()
}

/// The index map of one operand as text: `i 1 2*k+1`.
fn reads(map: &IndexMap) -> String {
    match map.0.is_empty() {
        true => "()".into(),
        false => map.0.iter().map(along).collect::<Vec<_>>().join(" "),
    }
}

fn indices(nest: &Iteration) -> String {
    let operands: Vec<String> = nest.operands.iter().map(reads).collect();
    let result: Vec<String> = (0..nest.parallel).map(letter).collect();
    let result = if result.is_empty() { "()".into() } else { result.join(" ") };
    format!("{} -> {result}", operands.join(", "))
}

/// The graph of one call, if the op accepts such operands.
fn call(sample: &Sample, specs: &[TensorSpec]) -> Option<(GraphBuilder, NodeId)> {
    let mut b = GraphBuilder::default();
    let inputs: Vec<_> = specs.iter().map(|s| b.input(s.clone())).collect();
    let result = b.emit(sample.op.clone(), &inputs).ok()?;
    Some((b, result))
}

fn specs(sample: &Sample) -> Vec<TensorSpec> {
    sample.inputs.iter().map(|x| x.spec().clone()).collect()
}

/// The dtypes that can replace the sample's f64 operands, or its first operand's dtype if there are
/// none.
fn dtypes(samples: &[Sample]) -> Vec<DType> {
    let takes = |sample: &Sample, dtype: DType| {
        if sample.op.as_host().is_some() {
            // A call of a custom op contains its results' dtypes.
            return sample.with_dtype(dtype).infer().is_ok();
        }
        let specs = specs(sample);
        let float = specs.iter().map(|s| s.dtype).find(|&d| d == DType::F64);
        let main = float.unwrap_or(specs[0].dtype);
        let change = |s: &TensorSpec| TensorSpec {
            dtype: if s.dtype == main { dtype } else { s.dtype },
            ..s.clone()
        };
        call(sample, &specs.iter().map(change).collect::<Vec<_>>()).is_some()
    };
    let taken = |&dtype: &DType| samples.iter().any(|sample| takes(sample, dtype));
    DType::ALL.into_iter().filter(taken).collect()
}

fn names(dtypes: &[DType]) -> String {
    if dtypes.len() == DType::ALL.len() {
        return "all".into();
    }
    dtypes.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ")
}

/// The decomposition of a composite, on its first sample.
fn definition(sample: &Sample) -> String {
    let (b, result) = call(sample, &specs(sample)).expect("the op takes its sample");
    let graph = b.finish([result]);
    let text = graph.decomposed().ok().flatten().map_or(String::new(), |g| g.to_string());
    let lines: Vec<&str> = text.lines().skip(1).map(str::trim_start).collect();
    lines.join("\n")
}

fn example(sample: &Sample) -> String {
    let operands: Vec<String> = specs(sample).iter().map(|s| s.to_string()).collect();
    let result = sample.infer().expect("the op takes its sample");
    format!("`{:?}`: `{} -> {result}`", sample.op, operands.join(", "))
}

fn section(code: OpCode, out: &mut String) -> std::fmt::Result {
    let (def, samples) = (code.def(), code.samples());
    let python = match code.python() {
        Ok(name) if name.contains('.') => format!("`{name}`"),
        Ok(name) => format!("`girih.{name}`"),
        Err(why) => format!("none: {why}"),
    };
    writeln!(out, "\n### {}\n\n{}\n\n* Python: {python}", def.name, def.doc)?;
    let Some(sample) = samples.first() else { return Ok(()) };
    // Regions take the specs they were recorded for, so a control op accepts every dtype.
    let dtypes = match def.class {
        Class::Control => DType::ALL.to_vec(),
        _ => dtypes(&samples),
    };
    writeln!(out, "* Dtypes: {}\n* Example: {}", names(&dtypes), example(sample))?;
    let (b, result) = call(sample, &specs(sample)).expect("the op takes its sample");
    if let Some(nest) = b.graph().iteration(result) {
        writeln!(out, "* Indices: `{}`", indices(&nest))?;
    }
    let operands = specs(sample);
    let operands: Vec<&TensorSpec> = operands.iter().collect();
    match sample.op.factors(&operands, b.graph().spec(result)) {
        Ok(factors) => writeln!(out, "* Factors: `{factors}`")?,
        Err(why) => writeln!(out, "* Factors: none: {why}")?,
    }
    let derivative = match def.derivative {
        Derivative::Rule(_) => "by a rule of its own".to_string(),
        Derivative::Decompose => "that of its definition".to_string(),
        Derivative::Regions => "by those of its regions".to_string(),
        Derivative::Refused(why) => format!("none: {why}"),
        Derivative::Zero(why) => format!("none: {why}"),
    };
    writeln!(out, "* Derivative: {derivative}")?;
    if def.class == Class::Composite {
        writeln!(out, "* Definition:\n\n```\n{}\n```", definition(sample))?;
    }
    Ok(())
}

fn markdown() -> Result<String, std::fmt::Error> {
    let mut out = HEAD.to_string();
    for &category in CATEGORIES {
        let members = || OpCode::ALL.iter().filter(|c| c.def().category() == category);
        let link = |c: &OpCode| format!("[{0}](#{0})", c.def().name);
        let links: Vec<String> = members().map(link).collect();
        writeln!(out, "\n## {category}\n\n{}", links.join(", "))?;
        members().try_for_each(|&code| section(code, &mut out))?;
    }
    Ok(out)
}

#[test]
fn the_list_of_ops_is_what_the_registry_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ops.md");
    let text = markdown().expect("strings can be written to");
    assert_eq!(text.matches("\n### ").count(), OpCode::ALL.len(), "a category is not listed");
    if std::env::var_os("GIRIH_UPDATE").is_some() {
        std::fs::write(&path, &text).expect("docs/ops.md can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = text.lines().zip(found.lines()).position(|(a, b)| a != b);
    assert!(found == text, "docs/ops.md is stale (from line {line:?}); run `make docs`");
}
