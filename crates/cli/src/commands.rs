//! The commands on graph files.

use crate::Answer;
use crate::files::{inputs, named_outputs, program};
use girih::{Complex64, DType, Program, Result, Tensor, TensorSpec, io};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Describes a tensor; sizes are numbers, or expressions as text.
fn spec_json(name: &str, spec: &TensorSpec) -> Value {
    let size = |dim: girih::Dim| match dim.known() {
        Some(size) => json!(size),
        None => json!(dim.to_string()),
    };
    let shape: Vec<Value> = spec.shape.dims().map(size).collect();
    json!({"name": name, "shape": shape, "dtype": spec.dtype.name()})
}

fn stats(program: &Program) -> Answer {
    let graph = program.graph();
    let list = |specs: &[(String, TensorSpec)]| -> String {
        let items: Vec<String> =
            specs.iter().map(|(name, spec)| format!("{name}: {spec}")).collect();
        if items.is_empty() { "none".into() } else { items.join(", ") }
    };
    let inputs: Vec<(String, TensorSpec)> =
        program.inputs().into_iter().map(|input| (input.name, input.spec)).collect();
    let outputs = program.outputs();
    let text = format!(
        "nodes      {}\nops        {}\nvalues     {} bytes, were each kept\nheld       {} bytes of \
         data in the file\ninputs     {}\noutputs    {}",
        graph.len(),
        graph.num_ops(),
        graph.estimated_memory_bytes(),
        program.held_bytes(),
        list(&inputs),
        list(&outputs),
    );
    let all = |specs: &[(String, TensorSpec)]| -> Vec<Value> {
        specs.iter().map(|(name, spec)| spec_json(name, spec)).collect()
    };
    let json = json!({
        "num_nodes": graph.len(),
        "num_ops": graph.num_ops(),
        "estimated_memory_bytes": graph.estimated_memory_bytes(),
        "held_bytes": program.held_bytes(),
        "inputs": all(&inputs),
        "outputs": all(&outputs),
    });
    Answer { text, json }
}

/// Lists the tensors of a file with name, shape and dtype.
fn show_tensors(path: &Path) -> Result<Answer> {
    let tensors = io::load(path)?;
    let bytes: usize = tensors.iter().map(|(_, tensor)| tensor.spec().size_bytes()).sum();
    let width = tensors.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let line = |(name, tensor): &(String, Tensor)| match width {
        0 => tensor.spec().to_string(),
        _ => format!("{name:width$}  {}", tensor.spec()),
    };
    let mut lines: Vec<String> = tensors.iter().map(line).collect();
    let plural = if tensors.len() == 1 { "" } else { "s" };
    lines.push(format!("{} tensor{plural}, {bytes} bytes", tensors.len()));
    let described: Vec<Value> =
        tensors.iter().map(|(name, tensor)| spec_json(name, &tensor.spec())).collect();
    Ok(Answer { text: lines.join("\n"), json: json!({"tensors": described, "bytes": bytes}) })
}

/// Shows the graph as text with its statistics, or only the statistics; for a tensor file, its
/// contents.
pub fn show(path: &Path, only_stats: bool) -> Result<Answer> {
    if io::Format::of(path).is_ok() {
        return show_tensors(path);
    }
    let program = program(path)?;
    let mut answer = stats(&program);
    if !only_stats {
        let text = program.to_text();
        answer.text = format!("{text}\n\n{}", answer.text);
        answer.json["text"] = text.into();
    }
    Ok(answer)
}

/// Writes the program in the format of the suffix of `to`, and says if the format has no room for
/// the values that the program holds.
pub fn convert(from: &Path, to: &Path) -> Result<Answer> {
    let program = program(from)?;
    program.save(to)?;
    let (nodes, path) = (program.graph().len(), to.display().to_string());
    let holds_values = to.extension().is_some_and(|suffix| suffix == "pfgb");
    let dropped = if holds_values { 0 } else { program.held_bytes() };
    let mut text = format!("{path}: {nodes} nodes");
    if dropped > 0 {
        text += &format!(
            ", without the {dropped} bytes of weights and other values that {} holds: only .pfgb \
             keeps them",
            from.display()
        );
    }
    Ok(Answer { text, json: json!({"output": path, "num_nodes": nodes, "dropped_bytes": dropped}) })
}

/// Ones as the inputs of a program that is only traced or timed.
fn made_up(program: &Program) -> Result<Vec<Tensor>> {
    let ones = |spec: &TensorSpec| -> Result<Tensor> {
        // Symbolic sizes have their values at tracing. The inputs are data, not constants of the
        // program.
        let spec = TensorSpec::new(spec.shape.hints(), spec.dtype);
        let ones = Tensor::ones(spec.shape.clone(), spec.dtype)?;
        Tensor::from_bytes(&spec, ones.to_bytes()?)
    };
    program.inputs().iter().map(|input| ones(&input.spec)).collect()
}

fn recorded(program: &Program, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    program.call(&inputs.iter().collect::<Vec<_>>())
}

/// Explains the compilation of the graph: passes, kernels, refused fusions, memory; or only prints
/// the kernels as C.
pub fn explain(path: &Path, asm: bool, c: bool) -> Result<Answer> {
    let mut explanation = girih::explain_graph(&program(path)?.example()?)?;
    explanation.asm = asm;
    let json = serde_json::from_str(&explanation.to_json());
    let mut json: Value =
        json.map_err(|e| girih::Error::InvalidArgument(format!("internal error: {e}")))?;
    if c {
        let Some(text) = explanation.to_c() else {
            return Err(girih::Error::InvalidArgument(
                "explain --c: this device has kernels of its own, which are not written as C; set \
                 GIRIH_DEVICE=cpu"
                    .into(),
            ));
        };
        json["c"] = text.as_str().into();
        return Ok(Answer { text, json });
    }
    Ok(Answer { text: explanation.to_string(), json })
}

/// Runs the program, and prints or writes its outputs.
pub fn run(path: &Path, from: Option<&Path>, to: Option<&Path>) -> Result<Answer> {
    let program = program(path)?;
    let given = inputs(&program, from)?;
    let outputs = recorded(&program, &given)?;
    girih::eval(&outputs)?;
    let outputs = named_outputs(&program, outputs);
    if let Some(to) = to {
        io::save(to, &outputs)?;
    }
    let described: Vec<Value> = outputs
        .iter()
        .map(|(name, tensor)| {
            let mut json = spec_json(name, &tensor.spec());
            if to.is_none() {
                json["values"] = values(tensor)?;
            }
            Ok(json)
        })
        .collect::<Result<_>>()?;
    let lines: Vec<String> = outputs
        .iter()
        .map(|(name, tensor)| match to {
            Some(_) => format!("{name}: {}", tensor.spec()),
            None => format!("{name}: {tensor}"),
        })
        .collect();
    let mut json = json!({"outputs": described});
    if let Some(to) = to {
        json["file"] = to.display().to_string().into();
    }
    Ok(Answer { text: lines.join("\n"), json })
}

/// The elements in row-major order: numbers, or text for values that JSON numbers cannot represent;
/// for complex numbers, pairs of real and imaginary part.
fn values(tensor: &Tensor) -> Result<Value> {
    let number = |v: f64| if v.is_finite() { json!(v) } else { json!(v.to_string()) };
    Ok(match tensor.dtype() {
        DType::Bool => tensor.to_vec::<bool>()?.into(),
        DType::U64 => tensor.to_vec::<u64>()?.into(),
        dtype if dtype.is_int() => tensor.astype(DType::I64)?.to_vec::<i64>()?.into(),
        dtype if dtype.is_complex() => {
            let items = tensor.astype(DType::C128)?.to_vec::<Complex64>()?;
            items.into_iter().map(|c| json!([number(c.re), number(c.im)])).collect()
        }
        _ => tensor.to_f64_vec()?.into_iter().map(number).collect(),
    })
}

/// Runs the program, and writes the times of kernels, copies and compilations.
pub fn trace(path: &Path, from: Option<&Path>, to: Option<&Path>, runs: u32) -> Result<Answer> {
    let program = program(path)?;
    let given = match from {
        Some(_) => inputs(&program, from)?,
        None => made_up(&program)?,
    };
    let mut timeline = girih::Timeline::start();
    for _ in 0..runs {
        girih::eval(&recorded(&program, &given)?)?;
    }
    timeline.stop();
    let mut text = timeline.table();
    let totals = timeline.totals();
    let rows = totals.iter().map(|total| {
        json!({
            "name": total.name,
            "kind": total.kind.name(),
            "calls": total.calls,
            "total_us": total.total.as_secs_f64() * 1e6,
        })
    });
    let mut json = json!({"runs": runs, "totals": rows.collect::<Vec<_>>()});
    if let Some(to) = to {
        timeline.save(to)?;
        text += &format!("{} spans in {}", timeline.spans().len(), to.display());
        json["file"] = to.display().to_string().into();
    }
    Ok(Answer { text, json })
}

/// Compiles the program once, then times runs.
pub fn bench(path: &Path, from: Option<&Path>, runs: u32) -> Result<Answer> {
    let program = program(path)?;
    let given = match from {
        Some(_) => inputs(&program, from)?,
        None => made_up(&program)?,
    };
    let first = Instant::now();
    girih::eval(&recorded(&program, &given)?)?;
    let first = first.elapsed().as_secs_f64() * 1e3;
    let mut times = Vec::with_capacity(runs as usize);
    for _ in 0..runs {
        let start = Instant::now();
        girih::eval(&recorded(&program, &given)?)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    let (least, median, most) = (times[0], at(0.5), at(0.9));
    let text = format!(
        "first run  {first:.3} ms, compilation included\nmedian     {median:.4} ms over {runs} \
         runs\nleast      {least:.4} ms\n90 %       {most:.4} ms"
    );
    let json = json!({
        "runs": runs,
        "first_ms": first,
        "median_ms": median,
        "min_ms": least,
        "p90_ms": most,
    });
    Ok(Answer { text, json })
}
