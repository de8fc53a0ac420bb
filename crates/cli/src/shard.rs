//! The command that plans a graph on a mesh of processors.

use crate::Answer;
use crate::files::program;
use girih::ir::Graph;
use girih::sharding::{DeviceMesh, Exchange, P, Partition, Sharding, largest_shape};
use girih::{Error, Result, TensorSpec};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// The mesh of a text such as `dp=2,tp=4`, of processors that need not exist.
fn mesh_of(text: &str) -> Result<DeviceMesh> {
    let expected = || {
        Error::InvalidArgument(format!(
            "--mesh: axes with their sizes are expected, as in dp=2,tp=4, found '{text}'"
        ))
    };
    let mut axes = Vec::new();
    let mut sizes = Vec::new();
    for part in text.split(',') {
        let (axis, size) = part.split_once('=').ok_or_else(expected)?;
        axes.push(axis.trim());
        sizes.push(size.trim().parse::<usize>().map_err(|_| expected())?);
    }
    Ok(DeviceMesh::new(&sizes, &axes)?.ghost())
}

/// The name and the spec in a text such as `x=<dp, *>`.
fn spec_of(text: &str) -> Result<(&str, P)> {
    let (name, spec) = text.split_once('=').ok_or_else(|| {
        let expected = "a name with its spec is expected, as in 'x=<dp, *>'";
        Error::InvalidArgument(format!("--spec: {expected}, found '{text}'"))
    })?;
    Ok((name, spec.parse()?))
}

/// A tensor with its spec and the bytes of the largest shard.
fn tensor_json(name: &str, tensor: &TensorSpec, spec: &P, mesh: &DeviceMesh) -> Result<Value> {
    let sharding = Sharding::new(mesh.clone(), spec.clone())?;
    let local = largest_shape(&sharding, tensor.shape.hints())?;
    let bytes = TensorSpec::new(local, tensor.dtype).size_bytes();
    let text = tensor.to_string();
    Ok(json!({"name": name, "tensor": text, "spec": spec.to_string(), "shard_bytes": bytes}))
}

fn exchange_json(graph: &Graph, exchange: &Exchange) -> Value {
    let [from, to] = &exchange.shardings;
    let user = exchange.user.map(|id| {
        let name = graph.name(id).map_or_else(|| id.to_string(), str::to_string);
        format!("{} {name}", graph.node(id).op.name())
    });
    json!({
        "op": exchange.plan.kind.to_string(),
        "tensor": exchange.tensor.to_string(),
        "from": from.spec().to_string(),
        "to": to.spec().to_string(),
        "bytes": exchange.bytes(),
        "for": user,
    })
}

fn programs(plan: &Partition) -> usize {
    let all = plan.stages.iter().flat_map(|stage| &stage.programs);
    all.map(Arc::as_ptr).collect::<HashSet<_>>().len()
}

/// Plans a graph on a mesh: the shard of each argument and output, and the collectives.
pub fn shard(path: &Path, mesh: &str, specs: &[String]) -> Result<Answer> {
    let (program, mesh) = (program(path)?, mesh_of(mesh)?);
    let specs = specs.iter().map(|text| spec_of(text)).collect::<Result<Vec<_>>>()?;
    let plan = program.partition(&mesh, &specs)?;
    let example = program.example()?;
    let mut arguments = Vec::new();
    for (id, name) in program.argument_names() {
        let given = specs.iter().find(|(of, _)| *of == name);
        let spec = given.map_or_else(P::default, |(_, spec)| spec.clone());
        arguments.push(tensor_json(&name, example.spec(id), &spec, &mesh)?);
    }
    let mut outputs = Vec::new();
    let named = program.outputs();
    for (((name, _), id), (_, spec)) in named.iter().zip(example.outputs()).zip(&plan.outputs) {
        outputs.push(tensor_json(name, example.spec(*id), spec, &mesh)?);
    }
    let collectives: Vec<Value> =
        plan.exchanges().map(|exchange| exchange_json(&example, exchange)).collect();
    let bytes: usize = plan.exchanges().map(Exchange::bytes).sum();
    let json = json!({
        "mesh": mesh.to_string(),
        "processors": mesh.len(),
        "arguments": arguments,
        "outputs": outputs,
        "stages": plan.stages.len(),
        "programs": programs(&plan),
        "collectives": collectives,
        "bytes": bytes,
    });
    Ok(Answer { text: text_of(&json), json })
}

fn text_of(json: &Value) -> String {
    let part = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let list = |of: &str| json[of].as_array().cloned().unwrap_or_default();
    let mut lines = vec![format!("mesh       {}", part(&json["mesh"]))];
    for (of, title) in [("arguments", "argument"), ("outputs", "output")] {
        for tensor in list(of) {
            let [name, spec, shard] = ["name", "spec", "shard_bytes"].map(|key| part(&tensor[key]));
            let tensor = part(&tensor["tensor"]);
            lines.push(format!("{title:10} {name}: {tensor} {spec}, at most {shard} bytes each"));
        }
    }
    for collective in list("collectives") {
        let [op, tensor, from, to, bytes, user] =
            ["op", "tensor", "from", "to", "bytes", "for"].map(|key| part(&collective[key]));
        let user = if user == "null" { "an output".into() } else { user };
        lines.push(format!("{op:10} {tensor} {from} to {to}, {bytes} bytes, for {user}"));
    }
    lines.push(format!(
        "in all     {} stages, {} different programs, {} bytes between processors",
        json["stages"], json["programs"], json["bytes"]
    ));
    lines.join("\n")
}
