//! PFGB, the binary file format of graphs and the values of their arguments.
//!
//! All numbers are little-endian. A file is a header, one record per node, and a footer:
//!
//! ```text
//! header   "PFGB", version u32 (1), flags u32, node count u32
//!          [flag 2] interface length u32, interface (see below)
//!          [flag 3] shardings length u32, shardings (see below)
//! record   id u64
//!          node type u8   0 constant, 1 parameter, 2 input, 4..=14 an op (see `codes::node_type`)
//!          op type u8     of an op: its code; 255: name length u16 and name follow
//!          name length u16, name in UTF-8
//!          rank u8, dims i64 each, dtype u8
//!          layout type u8, layout parameters (see StoredLayout)
//!          operand count u16, operand ids u64 each
//!          [flag 0]  attribute length u32, attributes (see below)
//!          constant:                            data length u64, data
//!          [flag 1] parameter, input or leaf op: data length u64, data
//! footer   output count u32, output ids u64 each
//!          CRC-32 (IEEE) u32 of all bytes before it
//! ```
//!
//! Flag 0 (attributes), flag 1 (data of arguments), flag 2 (interface) and flag 3 (shardings) are set
//! only if a graph needs them. A graph without attributes is written byte for byte as in the first version of the
//! format.
//!
//! The attribute section starts with a byte that is 1 if the op has attributes, or 2 if the
//! attributes hold symbolic sizes. Their fields follow in the order of [`crate::Attrs::fields`],
//! then a count u32 of hints and each hint's key and value with u32 lengths. A region of a branch
//! or loop is an embedded file after its length u32; a count u32 of regions comes first. The name
//! of a node is the hint `name`, its layout the hint `layout`. Without the section, attributes have
//! the values that the text form omits; for an op without such values this is an error.
//!
//! A constant's data are all of its elements; with flag 0, one element and the value in the
//! attributes. A constant whose elements differ has no attributes. In the graph it is an input with
//! data and the hint `kind` of value `constant`. The data of a parameter or input are all elements.
//! The data of a random leaf are its generator's key and offset. Length 2^64-1 means that there are
//! no data. Results of ops are never stored: a file says how to compute them.
//!
//! The interface is three lists of texts. Each list is a count u32 and the texts, each after its
//! length u32: symbols (`batch=2 in 1..=64`: name, traced value, range), guards (`batch*2 >= 9`),
//! and the names of the outputs, one for each or none. A size whose highest bit is set is an
//! expression over the symbols: its other bits are the length of the text that follows.
//!
//! The shardings are the mesh as a text after its length u32, then a count u32 and, for each value
//! with a sharding, the position of its record u32 and its spec as a text after its length u32. The
//! texts are those of [`crate::sharding`].

mod codes;
mod read;
mod shardings;
#[cfg(test)]
mod tests;

pub use codes::{EXTENDED, OPS, StoredLayout, dtype_code, dtype_of, op_code};
pub use read::decode;
pub(crate) use read::decode_region;

use crate::ops::Class;
use crate::ops::fields::{Field, encode_dim};
use crate::{Attrs, Error, Graph, Node, NodeId, Op, OpCode, Result};
pub(crate) use codes::utf8;
use codes::{CONSTANT, FIRST_OP, encode_text, node_type};
use std::collections::BTreeMap;

const MAGIC: &[u8; 4] = b"PFGB";
const VERSION: u32 = 1;
/// Flag: nodes have an attribute section.
const ATTRIBUTES: u32 = 1;
/// Flag: arguments other than constants have data.
const DATA: u32 = 2;
/// Flag: the graph has symbols, guards or output names.
const INTERFACE: u32 = 4;
/// Flag: values have shardings.
const SHARDINGS: u32 = 8;
/// Data length that marks missing data.
const ABSENT: u64 = u64::MAX;
const HEADER: usize = 16;
/// The hint that holds a value's distribution over processing elements: a printed [`StoredLayout`].
pub const LAYOUT: &str = "layout";
/// The hint that holds the node type of the file, if the graph represents that node as an input.
const KIND: &str = "kind";
const KIND_CONSTANT: &str = "constant";

/// The contents of a file: a graph and the values of some of its arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// The graph.
    pub graph: Graph,
    /// Little-endian memory of arguments: all elements of an input or a parameter, one element of a
    /// run-time constant, key and offset of a random leaf.
    pub data: BTreeMap<NodeId, Vec<u8>>,
}

impl File {
    /// Encodes the file.
    ///
    /// Errors: [`Error::Invalid`] for a graph that does not verify, data of a wrong length, an
    /// invalid layout, two symbols of one name, or a name that is too long for the format.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.graph.verify()?;
        for (&id, data) in &self.data {
            self.check_data(id, data)?;
        }
        fits(&self.graph)?;
        Ok(self.bytes())
    }

    /// Encodes a graph that verifies and that the format can represent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let flags = self.flags();
        let mut out = Vec::new();
        out.extend_from_slice(MAGIC);
        [VERSION, flags, self.graph.len() as u32].iter().for_each(|v| v.encode(&mut out));
        if flags & INTERFACE != 0 {
            self.interface(&mut out);
        }
        shardings::encode(&self.graph, &mut out);
        for (id, node) in self.graph.nodes() {
            self.record(id, node, flags, &mut out);
        }
        (self.graph.outputs().len() as u32).encode(&mut out);
        self.graph.outputs().iter().for_each(|o| o.index().encode(&mut out));
        let crc = crc32(&out);
        crc.encode(&mut out);
        out
    }

    fn interface(&self, out: &mut Vec<u8>) {
        let symbols = self.graph.symbols();
        let lists = [
            symbols.iter().map(|symbol| symbol.declaration()).collect(),
            self.graph.guards().iter().map(|guard| guard.to_string()).collect(),
            self.graph.output_names().to_vec(),
        ];
        let mut section = Vec::new();
        for list in lists as [Vec<String>; 3] {
            (list.len() as u32).encode(&mut section);
            list.iter().for_each(|text| encode_text(text, &mut section));
        }
        (section.len() as u32).encode(out);
        out.extend(section);
    }

    /// The data of an input that the file stores as a constant. The elements differ, since a
    /// constant in the graph has equal elements.
    fn unequal_elements(&self, id: NodeId) -> Option<&Vec<u8>> {
        let node = self.graph.node(id);
        let kind = self.graph.hints(id).get(KIND).map(String::as_str);
        let constant = node.op.code == OpCode::Input && kind == Some(KIND_CONSTANT);
        let data = self.data.get(&id).filter(|_| constant)?;
        read::splat(data, node.spec.dtype.size()).is_none().then_some(data)
    }

    fn check_data(&self, id: NodeId, data: &[u8]) -> Result<()> {
        let invalid = |reason| Err(Error::Invalid { at: format!("data of {id}"), reason });
        if id.index() >= self.graph.len() {
            return invalid(format!("there are {} nodes", self.graph.len()));
        }
        match data_size(self.graph.node(id)) {
            None => invalid("it takes no argument".into()),
            Some(size) if size != data.len() => {
                invalid(format!("{} bytes, where {size} are expected", data.len()))
            }
            Some(_) => Ok(()),
        }
    }

    fn flags(&self) -> u32 {
        let needs_attributes = |(id, node): (NodeId, &Node)| {
            self.noted(id).next().is_some()
                || match (node.op.code, &node.op.attrs) {
                    _ if node.is_symbolic() => true,
                    (OpCode::Constant, Attrs::None) => true,
                    (OpCode::Constant, _) => !(1..=MAX_SPLAT).contains(&node.spec.size_bytes()),
                    (_, attrs) => !attrs.text(self.graph.context(id)).is_empty(),
                }
        };
        let is_constant = |id: NodeId| {
            self.graph.node(id).op.code == OpCode::Constant || self.unequal_elements(id).is_some()
        };
        let attributes = self.graph.nodes().any(needs_attributes);
        let data = self.data.keys().any(|&id| !is_constant(id));
        let interface = self.graph.is_symbolic()
            || !self.graph.guards().is_empty()
            || !self.graph.output_names().is_empty();
        (ATTRIBUTES * u32::from(attributes))
            | (DATA * u32::from(data))
            | (INTERFACE * u32::from(interface))
            | (SHARDINGS * u32::from(self.graph.own_mesh().is_some()))
    }

    /// The hints that the hint section of a record stores, because the record has no field for
    /// them.
    fn noted(&self, id: NodeId) -> impl Iterator<Item = (&String, &String)> {
        let constant = self.unequal_elements(id).is_some();
        self.graph.hints(id).iter().filter(move |(key, value)| match key.as_str() {
            // An empty name field means that there is no name, so an empty name is stored as a
            // hint.
            "name" => value.is_empty(),
            LAYOUT => false,
            KIND => !constant,
            _ => true,
        })
    }

    fn record(&self, id: NodeId, node: &Node, flags: u32, out: &mut Vec<u8>) {
        id.index().encode(out);
        let unequal = self.unequal_elements(id).is_some();
        let kind = if unequal { CONSTANT } else { node_type(&node.op) };
        out.push(kind);
        if kind >= FIRST_OP {
            encode_op(&node.op, out);
        }
        let name = self.graph.name(id).unwrap_or_default();
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.push(node.spec.shape.rank() as u8);
        node.spec.shape.dims().for_each(|d| encode_dim(d, out));
        node.spec.dtype.encode(out);
        self.graph.layout(id).encode(out);
        out.extend_from_slice(&(node.inputs.len() as u16).to_le_bytes());
        node.inputs.iter().for_each(|i| i.index().encode(out));
        if flags & ATTRIBUTES != 0 {
            self.attributes(id, node, out);
        }
        if kind == CONSTANT || (flags & DATA != 0 && node.op.class() == Class::Leaf) {
            self.argument(id, node, flags, out);
        }
    }

    fn attributes(&self, id: NodeId, node: &Node, out: &mut Vec<u8>) {
        let start = out.len();
        0u32.encode(out);
        out.push(node.op.attrs.kind());
        node.op.attrs.fields(&mut |_, field| field.encode(out));
        (self.noted(id).count() as u32).encode(out);
        for (key, value) in self.noted(id) {
            encode_text(key, out);
            encode_text(value, out);
        }
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    fn argument(&self, id: NodeId, node: &Node, flags: u32, out: &mut Vec<u8>) {
        let element = self.graph.literal(id).map(|value| {
            let bytes = value.bits.to_le_bytes();
            let size = node.spec.dtype.size();
            // The bits of a complex constant are its real part.
            (0..size).map(|i| bytes.get(i).copied().unwrap_or(0)).collect::<Vec<u8>>()
        });
        let data = match element {
            Some(element) if flags & ATTRIBUTES != 0 => Some(element),
            Some(element) => Some(element.repeat(node.spec.numel())),
            None => self.data.get(&id).cloned(),
        };

        let len = data.as_ref().map_or(ABSENT, |data| data.len() as u64);
        out.extend_from_slice(&len.to_le_bytes());
        out.extend(data.unwrap_or_default());
    }
}

impl Graph {
    /// A node's distribution over processing elements, from its hint `layout` if that is a valid
    /// layout for the value.
    pub fn layout(&self, id: NodeId) -> StoredLayout {
        let hint = self.hints(id).get(LAYOUT);
        let layout = hint.and_then(|text| StoredLayout::parse(text, &self.spec(id).shape).ok());
        layout.unwrap_or_default()
    }
}

/// Fails for names, layouts, symbols or operand counts that the format cannot represent.
fn fits(graph: &Graph) -> Result<()> {
    let symbols = graph.symbols();
    let twice = |i: usize| symbols[..i].iter().any(|s| s.name() == symbols[i].name());
    if let Some(i) = (0..symbols.len()).find(|&i| twice(i)) {
        let reason = format!("two symbols of different ranges are called '{}'", symbols[i].name());
        return Err(Error::Invalid { at: "sizes".into(), reason });
    }
    for (id, node) in graph.nodes() {
        if let Some(layout) = graph.hints(id).get(LAYOUT) {
            let parsed = StoredLayout::parse(layout, &node.spec.shape);
            parsed.map_err(|expected| Error::Invalid {
                at: id.to_string(),
                reason: format!("expected {expected}"),
            })?;
        }
        let name = graph.name(id).map_or(0, str::len);
        for (what, len) in [("a name", name), ("operands", node.inputs.len())] {
            if len > u16::MAX as usize {
                let reason =
                    format!("{what} of length {len}; the format has room for {}", u16::MAX);
                return Err(Error::Invalid { at: id.to_string(), reason });
            }
        }
        if let Some((_, control)) = node.op.as_control() {
            control.regions.iter().try_for_each(fits)?;
        }
    }
    Ok(())
}

/// Maximum size of a constant whose elements are all written.
const MAX_SPLAT: usize = 4096;

/// Byte size of a node's argument, if the node takes one.
pub fn data_size(node: &Node) -> Option<usize> {
    match node.op.code {
        _ if !node.op.takes_argument() => None,
        OpCode::Constant => Some(node.spec.dtype.size()),
        _ if node.op.is_random() => Some(16),
        _ if node.is_symbolic() => None,
        _ => Some(node.spec.size_bytes()),
    }
}

fn encode_op(op: &Op, out: &mut Vec<u8>) {
    match op_code(op.code) {
        Some(code) => out.push(code),
        None => {
            let name = op.name();
            out.push(EXTENDED);
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
    }
}

/// The CRC-32 of IEEE 802.3 (reflected, polynomial 0xEDB88320), as zlib computes it.
pub fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut value = i as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[i] = value;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, &b| crc >> 8 ^ TABLE[(crc as u8 ^ b) as usize])
}
