//! Explanations as JSON, for tools.

use super::{Explanation, KernelInfo, OpInfo, RefusalInfo};
use girih_ir::Traffic;
use girih_runtime::report::{BufferReport, Stage};
use girih_runtime::{Bottleneck, Lookup, Placement};
use std::fmt::Write;

/// A JSON value.
enum Json {
    Null,
    Number(u64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Number(n) => out.push_str(&n.to_string()),
            Json::Text(text) => write_text(text, out),
            Json::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    item.write(out);
                }
                out.push(']');
            }
            Json::Object(fields) => {
                out.push('{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    write_text(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

impl From<usize> for Json {
    fn from(n: usize) -> Json {
        Json::Number(n as u64)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Json {
        Json::Text(text.to_string())
    }
}

impl From<&String> for Json {
    fn from(text: &String) -> Json {
        Json::Text(text.clone())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Json {
        value.map_or(Json::Null, Into::into)
    }
}

fn list<T, J: Into<Json>>(items: &[T], json: impl Fn(&T) -> J) -> Json {
    Json::List(items.iter().map(|item| json(item).into()).collect())
}

impl Explanation {
    /// The whole explanation as a JSON object, with keys like the fields.
    pub fn to_json(&self) -> String {
        let stage = |s: &Stage| {
            Json::Object(vec![
                ("pass", (&s.pass).into()),
                ("iteration", s.iteration.into()),
                ("num_nodes", s.num_nodes.into()),
                ("text", (&s.text).into()),
            ])
        };
        let operation = |o: &super::OperationInfo| {
            let steps = list(&o.steps, |s: &String| Json::from(s));
            Json::Object(vec![("name", (&o.name).into()), ("steps", steps)])
        };
        let object = Json::Object(vec![
            ("graph", Json::Text(self.graph.to_string())),
            ("lines", list(&self.lines, |l| Json::from(l.as_ref()))),
            ("stages", list(&self.stages, stage)),
            ("iterations", self.iterations.into()),
            ("optimized", Json::Text(self.optimized.to_string())),
            ("unused_arguments", list(&self.unused_arguments, |&i| i)),
            ("kernels", list(&self.kernels, |k| kernel(k, self.asm))),
            ("traffic", traffic(self.traffic())),
            ("refusals", list(&self.refusals, refusal)),
            ("bottlenecks", list(&self.bottlenecks, bottleneck)),
            ("operations", list(&self.operations, operation)),
            ("memory", self.memory_json()),
            ("cache", cache(&self.cache)),
        ]);
        let mut out = String::new();
        object.write(&mut out);
        out
    }

    fn memory_json(&self) -> Json {
        let m = &self.memory;
        Json::Object(vec![
            ("argument_bytes", m.argument_bytes.into()),
            ("output_bytes", m.output_bytes.into()),
            ("temporary_bytes", m.temporary_bytes.into()),
            ("unshared_temporary_bytes", m.unshared_temporary_bytes.into()),
            ("peak_bytes", m.peak_bytes.into()),
            ("buffers", list(&m.buffers, buffer)),
        ])
    }
}

fn traffic(traffic: Traffic) -> Json {
    Json::Object(vec![
        ("bytes_read", Json::Number(traffic.bytes_read)),
        ("bytes_written", Json::Number(traffic.bytes_written)),
        ("flops", Json::Number(traffic.flops)),
    ])
}

fn kernel(kernel: &KernelInfo, asm: bool) -> Json {
    let op = |op: &OpInfo| {
        Json::Object(vec![
            ("node", Json::Text(op.node.to_string())),
            ("op", op.op.into()),
            ("recorded_node", Json::from(op.recorded.map(|(id, _)| id.index()))),
            ("recorded_op", Json::from(op.recorded.map(|(_, name)| name))),
            ("line", Json::from(op.line.as_ref())),
        ])
    };
    let mut fields = vec![
        ("name", (&kernel.name).into()),
        ("ops", list(&kernel.ops, op)),
        ("traffic", traffic(kernel.traffic)),
        ("lines", list(&kernel.lines, |l: &String| Json::from(l))),
        ("text", (&kernel.text).into()),
    ];
    if asm {
        fields.push(("assembly", list(&kernel.assembly(), |code: &String| Json::from(code))));
    }
    Json::Object(fields)
}

fn refusal(refusal: &RefusalInfo) -> Json {
    Json::Object(vec![
        ("value", Json::Text(refusal.value.to_string())),
        ("user", refusal.user.map_or(Json::Null, |user| Json::Text(user.to_string()))),
        ("code", refusal.code.into()),
        ("sentence", (&refusal.sentence).into()),
        ("line", Json::from(refusal.line.as_ref())),
    ])
}

fn bottleneck(found: &Bottleneck) -> Json {
    Json::Object(vec![
        ("kernel", found.kernel.into()),
        ("code", found.code.into()),
        ("sentence", (&found.sentence).into()),
        ("lost_ns", Json::Number(found.lost_ns)),
    ])
}

fn buffer(buffer: &BufferReport) -> Json {
    let (kind, at) = match buffer.placement {
        Placement::Argument(position) => ("argument", Some(position)),
        Placement::Output => ("output", None),
        Placement::Temporary(offset) => ("temporary", Some(offset)),
        Placement::Unused => ("unused", None),
    };
    Json::Object(vec![
        ("contents", (&buffer.contents).into()),
        ("size_bytes", buffer.size_bytes.into()),
        ("placement", kind.into()),
        ("at", Json::from(at)),
        ("written_by", Json::from(buffer.written_by)),
        ("last_read_by", Json::from(buffer.last_read_by)),
        ("reuses", list(&buffer.reuses, |&b| b)),
    ])
}

fn cache(lookup: &Lookup) -> Json {
    let (state, fields): (&str, &[String]) = match lookup {
        Lookup::Hit => ("hit", &[]),
        Lookup::New => ("miss", &[]),
        Lookup::Differs(fields) => ("miss", fields),
    };
    let differences = list(fields, |f: &String| Json::from(f));
    Json::Object(vec![("state", state.into()), ("differences", differences)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut out = String::new();
        write_text("a\"b\\c\n\t é", &mut out);
        assert_eq!(out, r#""a\"b\\c\n\u0009 é""#);
    }
}
