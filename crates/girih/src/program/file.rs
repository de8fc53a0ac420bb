//! Programs as files and text: PFGB with values; text, DOT, SVG and HTML without values.

use super::{Held, Program};
use crate::{Error, Result, Tensor};
use girih_ir::pfgb::{self, File};
use girih_ir::{Graph, NodeId, OpCode};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::path::Path;

impl Program {
    /// The program as a PFGB file. Evaluates the values that it holds if needed.
    ///
    /// Errors: [`Error::Evaluation`] if the evaluation fails; [`Error::Record`] for anything that
    /// the format cannot represent.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let whole = self.with_rules()?;
        let mut file = File { graph: whole.graph.clone(), data: BTreeMap::new() };
        for (&id, held) in &whole.values {
            let data = match held {
                Held::Tensor(tensor) => tensor.to_bytes()?,
                Held::Scalar(bits) => {
                    let mut bytes = bits.to_le_bytes().to_vec();
                    bytes.resize(whole.graph.spec(id).dtype.size(), 0);
                    bytes
                }
                Held::Random { key, offset } => [key.to_le_bytes(), offset.to_le_bytes()].concat(),
            };
            file.data.insert(id, data);
        }
        Ok(file.encode()?)
    }

    /// Reads a program from a PFGB file.
    ///
    /// Errors: [`girih_ir::Error::Format`] with the position and the expected content.
    pub fn from_bytes(bytes: &[u8]) -> Result<Program> {
        let file = pfgb::decode(bytes)?;
        let mut values = BTreeMap::new();
        for (id, data) in file.data {
            let node = file.graph.node(id);
            let word = |at: usize| {
                data.iter().skip(at).take(8).rev().fold(0, |word, &b| word << 8 | b as u64)
            };
            let held = match node.op.code {
                OpCode::Constant => Held::Scalar(word(0)),
                _ if node.op.is_random() => Held::Random { key: word(0), offset: word(8) },
                code => {
                    let tensor = Tensor::from_bytes(&node.spec, data)?;
                    Held::Tensor(match code {
                        OpCode::Parameter => tensor.into_parameter()?,
                        _ => tensor,
                    })
                }
            };
            values.insert(id, held);
        }
        Ok(Program { graph: file.graph, values })
    }

    /// Parses a program from text; it holds no values.
    ///
    /// Errors: [`girih_ir::Error::Parse`] with line, column and the expected content.
    pub fn from_text(text: &str) -> Result<Program> {
        Ok(Program::of_graph(Graph::parse(text)?))
    }

    /// Reads a program from a file. The file is read as PFGB if it starts with the magic number of
    /// PFGB, else as text.
    ///
    /// Errors: [`Error::Io`]; as [`Program::from_bytes`] and [`Program::from_text`].
    pub fn load(path: impl AsRef<Path>) -> Result<Program> {
        let path = path.as_ref();
        let bytes = crate::io::read_file(path)?;
        if bytes.starts_with(b"PFGB") {
            return Program::from_bytes(&bytes);
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Program::from_text(text),
            Err(error) => Err(girih_ir::Error::Format {
                format: "graph",
                offset: error.valid_up_to() as u64,
                reason: "it is neither PFGB nor text in UTF-8".into(),
            }
            .into()),
        }
    }

    /// Writes the program atomically in the format of the suffix: `.pfgb` with the values that it
    /// holds; `.txt` or `.girih` as text, `.dot`, `.svg` and `.html` without values.
    ///
    /// Errors: [`Error::InvalidArgument`] for another suffix; [`Error::Io`]; as
    /// [`Program::to_bytes`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = match path.extension().and_then(|e| e.to_str()) {
            Some("pfgb") => self.to_bytes()?,
            Some("txt" | "girih") => format!("{}\n", self.with_rules()?.graph).into_bytes(),
            Some("dot") => self.to_dot().into_bytes(),
            Some("svg") => self.to_svg().into_bytes(),
            Some("html") => {
                let title = path.file_stem().unwrap_or_default().to_string_lossy();
                self.to_html(&title).into_bytes()
            }
            _ => {
                return Err(Error::InvalidArgument(format!(
                    "the suffix of '{}' is not one of a file of graphs; use .pfgb, .txt, .girih, .dot, \
                     .svg or .html",
                    path.display()
                )));
            }
        };
        crate::io::write(path, &bytes)
    }

    /// The graph in DOT, with the ops of a kernel in a cluster.
    pub fn to_dot(&self) -> String {
        let kernels = self.kernels();
        girih_ir::dot::to_dot_grouped(&self.graph, |id| kernels.get(&id).copied())
    }

    /// The graph as a drawing, coloured by kernel.
    pub fn to_svg(&self) -> String {
        let kernels = self.kernels();
        girih_ir::svg::to_svg_grouped(&self.graph, |id| kernels.get(&id).copied())
    }

    /// The graph as an HTML page, coloured by kernel, with panning, zoom and search.
    pub fn to_html(&self, title: &str) -> String {
        let kernels = self.kernels();
        let group = |id: NodeId| kernels.get(&id).copied();
        girih_ir::html::to_html(&self.graph, title, group, |_| Vec::new())
    }

    /// The index of the kernel that computes each node. A node that the passes removed has no
    /// kernel; the map is empty if the graph cannot be compiled.
    fn kernels(&self) -> FxHashMap<NodeId, usize> {
        let mut found = FxHashMap::default();
        let explained = self.example().and_then(|graph| crate::explain_graph(&graph));
        if let Ok(explanation) = explained {
            for (i, kernel) in explanation.kernels.iter().enumerate() {
                for (node, _) in kernel.ops.iter().filter_map(|op| op.recorded) {
                    found.insert(node, i);
                }
            }
        }
        found
    }

    /// The program as the text of a function: `fn(%a1: f32[4,8]) -> f32[4] { … }`; see
    /// [`girih_ir::text::function`].
    pub fn to_function_text(&self) -> String {
        self.graph.as_function(&|id| self.values.contains_key(&id)).to_string()
    }

    /// The program's graph as text, without values. The text contains the custom derivative rules
    /// of functions, if they can be recorded.
    pub fn to_text(&self) -> String {
        match self.with_rules() {
            Ok(whole) => whole.graph.to_string(),
            Err(_) => self.graph.to_string(),
        }
    }
}
