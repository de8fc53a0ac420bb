//! The reader of PFGB files. The input is untrusted: every count is compared with the remaining
//! bytes before memory is reserved, and every node passes its op's checks.

use super::codes::{
    CONSTANT, EXTENDED, FIRST_OP, INPUT, LAST_OP, OPS, PARAMETER, StoredLayout, decode_text,
    op_named, utf8,
};
use super::shardings::Shardings;
use super::{
    ABSENT, ATTRIBUTES, DATA, File, HEADER, INTERFACE, KIND, KIND_CONSTANT, LAYOUT, MAGIC,
    SHARDINGS, VERSION, crc32, data_size,
};
use crate::dim::{Guard, Guards, Symbol};
use crate::ops::Class;
use crate::ops::control::MAX_DEPTH;
use crate::ops::fields::{Bytes, Context, Expected, FieldMut, decode_dim};
use crate::{Attrs, DType, Error, Literal, Node, NodeId, Op, OpCode, Result, TensorSpec};
use smallvec::SmallVec;
use std::collections::HashMap;

/// Minimum number of bytes of a record.
const MIN_RECORD: usize = 16;

/// Decodes a file.
///
/// Errors: [`Error::Format`] with the position and what was expected at this position.
pub fn decode(bytes: &[u8]) -> Result<File> {
    decode_region(bytes, 0)
}

/// Decodes a file that is embedded `depth` levels deep in other files.
///
/// Errors: as [`decode`].
pub(crate) fn decode_region(bytes: &[u8], depth: usize) -> Result<File> {
    if depth > MAX_DEPTH {
        return Err(format_error(0, format!("regions nest deeper than {MAX_DEPTH}")));
    }
    let body = check(bytes)?;
    let flags = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    let count = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
    let mut rest = Bytes { rest: &body[HEADER..], depth, symbols: None };
    let failed = |rest: &[u8], expected: Expected| {
        format_error(body.len() - rest.len(), format!("expected {expected}"))
    };
    let interface = match flags & INTERFACE {
        0 => None,
        _ => Some(Interface::decode(&mut rest).map_err(|e| failed(rest.rest, e))?),
    };
    let shardings = match flags & SHARDINGS {
        0 => None,
        _ => Some(Shardings::decode(&mut rest).map_err(|e| failed(rest.rest, e))?),
    };
    rest.symbols = interface.as_ref().map(|interface| &*interface.symbols);
    let mut reader = Reader { file: File::default(), ids: HashMap::new(), flags, bytes: rest };
    let decided = Guards::new();
    let entered = decided.enter();
    let read = reader.read(count as usize).map_err(|e| failed(reader.bytes.rest, e));
    drop(entered);
    let mut file = read.map(|()| reader.file)?;
    if let Some(interface) = interface {
        let named = interface.attach(&mut file.graph, decided.collected());
        named.map_err(|expected| failed(&[], expected))?;
    }
    if let Some(shardings) = shardings {
        shardings.attach(&mut file.graph).map_err(|expected| failed(&[], expected))?;
    }
    Ok(file)
}

/// Facts about the graph that no node record holds.
struct Interface {
    symbols: Vec<&'static Symbol>,
    guards: Vec<Guard>,
    output_names: Vec<String>,
}

impl Interface {
    fn decode(bytes: &mut Bytes<'_>) -> Read<Interface> {
        let len = bytes.count(1)?;
        let mut section = Bytes { rest: bytes.take(len)?, ..*bytes };
        let mut list = || -> Read<Vec<String>> {
            let count = section.count(4)?;
            (0..count).map(|_| decode_text(&mut section)).collect()
        };
        let (declared, guarded, output_names) = (list()?, list()?, list()?);
        if !section.rest.is_empty() {
            let more = section.rest.len();
            return Err(format!("the end of the interface, found {more} more bytes"));
        }
        let mut symbols: Vec<&'static Symbol> = Vec::new();
        for text in declared {
            let symbol = Symbol::parse(&text)
                .filter(|new| symbols.iter().all(|known| known.name() != new.name()));
            let expected =
                || format!("symbols, each once, such as 'batch=2 in 1..=64', found '{text}'");
            symbols.push(symbol.ok_or_else(expected)?);
        }
        let guard = |text: String| {
            let guard = Guard::parse(&text, &symbols);
            guard.ok_or_else(|| format!("a guard such as 'batch*2 >= 9', found '{text}'"))
        };
        let guards = guarded.into_iter().map(guard).collect::<Read<_>>()?;
        Ok(Interface { symbols, guards, output_names })
    }

    /// Attaches the interface to the graph, with the guards that reading the graph has added.
    fn attach(self, graph: &mut crate::Graph, decided: Vec<Guard>) -> Read<()> {
        let mut guards = self.guards;
        guards.extend(decided);
        let mut seen: Vec<Guard> = Vec::new();
        guards.retain(|guard| {
            !seen.contains(guard) && {
                seen.push(*guard);
                true
            }
        });
        graph.set_guards(guards);
        let undeclared = |symbol: &&&Symbol| !self.symbols.contains(*symbol);
        if let Some(symbol) = graph.symbols().iter().find(undeclared) {
            return Err(format!("declared symbols, found '{}'", symbol.name()));
        }
        if self.output_names.is_empty() {
            return Ok(());
        }
        let named = graph.set_output_names(self.output_names);
        named.map_err(|error| format!("one name per output, found that {error}"))
    }
}

fn format_error(at: usize, reason: String) -> Error {
    Error::Format { format: "PFGB", offset: at as u64, reason }
}

/// Checks header and checksum, and returns the bytes before the checksum.
fn check(bytes: &[u8]) -> Result<&[u8]> {
    if !bytes.starts_with(MAGIC) {
        let found = &bytes[..bytes.len().min(4)];
        return Err(format_error(0, format!("expected \"PFGB\", found {found:?}")));
    }
    // Header, an empty footer, checksum.
    if bytes.len() < HEADER + 8 {
        let reason = format!("the file ends after {} bytes, before its header does", bytes.len());
        return Err(format_error(bytes.len(), reason));
    }
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    if word(4) != VERSION {
        return Err(format_error(4, format!("version {}; this reads version {VERSION}", word(4))));
    }
    if word(8) & !(ATTRIBUTES | DATA | INTERFACE | SHARDINGS) != 0 {
        let reason = format!("unknown flags {:#x}; this reads 1, 2, 4 and 8", word(8));
        return Err(format_error(8, reason));
    }
    let end = bytes.len() - 4;
    let (found, expected) = (word(end), crc32(&bytes[..end]));
    if found != expected {
        let reason = format!(
            "the checksum is {found:08x}, of these bytes it would be {expected:08x}: the file is \
             damaged or cut short"
        );
        return Err(format_error(end, reason));
    }
    Ok(&bytes[..end])
}

struct Reader<'a> {
    file: File,
    /// Nodes by their id in the file.
    ids: HashMap<u64, NodeId>,
    flags: u32,
    bytes: Bytes<'a>,
}

/// A decoded record.
struct Record {
    code: Option<OpCode>,
    name: String,
    spec: TensorSpec,
    layout: StoredLayout,
    inputs: SmallVec<[NodeId; 3]>,
}

type Read<T> = Result<T, Expected>;

impl Reader<'_> {
    fn read(&mut self, count: usize) -> Read<()> {
        if count.checked_mul(MIN_RECORD).is_none_or(|size| size > self.bytes.rest.len()) {
            return Err(format!("{count} nodes, found {} bytes", self.bytes.rest.len()));
        }
        for _ in 0..count {
            self.node()?;
        }
        let outputs = self.bytes.count(8)?;
        let outputs = (0..outputs).map(|_| self.operand()).collect::<Read<Vec<_>>>()?;
        self.file.graph.set_outputs(outputs);
        match self.bytes.rest.len() {
            0 => Ok(()),
            more => Err(format!("the checksum, found {more} bytes before it")),
        }
    }

    fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.bytes.array()?))
    }

    fn u16(&mut self) -> Read<usize> {
        Ok(u16::from_le_bytes(self.bytes.array()?) as usize)
    }

    /// The id of an operand, which must precede this node.
    fn operand(&mut self) -> Read<NodeId> {
        let id = self.u64()?;
        self.ids.get(&id).copied().ok_or_else(|| {
            format!("a node that stands before its users, found the unknown id {id}")
        })
    }

    fn node(&mut self) -> Read<()> {
        let id = self.u64()?;
        let record = self.record()?;
        let (attrs, hints) = self.attributes(&record)?;
        let node = self.checked(&record, attrs)?;
        let at = NodeId(self.file.graph.len() as u32);
        let constant = node.op.code == OpCode::Constant;
        let node = self.argument(at, node)?;
        let unequal = constant && node.op.code == OpCode::Input;
        self.file.graph.append(node);
        if unequal {
            self.file.graph.set_hint(at, KIND, KIND_CONSTANT);
        }
        for (key, value) in hints {
            if self.file.graph.hints(at).contains_key(&key) || key == LAYOUT {
                return Err(format!("each hint once and in its place, found another '{key}'"));
            }
            self.file.graph.set_hint(at, key, value);
        }
        if !record.name.is_empty() {
            self.file.graph.set_name(at, record.name);
        }
        let shape = &self.file.graph.spec(at).shape;
        record.layout.check(shape)?;
        if record.layout != StoredLayout::SinglePe {
            self.file.graph.set_hint(at, LAYOUT, record.layout.to_string());
        }
        match self.ids.insert(id, at) {
            None => Ok(()),
            Some(_) => Err(format!("each id once, found {id} twice")),
        }
    }

    /// Reads a record up to its attributes.
    fn record(&mut self) -> Read<Record> {
        let [kind] = self.bytes.array()?;
        let code = match kind {
            CONSTANT => Some(OpCode::Constant),
            PARAMETER => Some(OpCode::Parameter),
            INPUT => Some(OpCode::Input),
            FIRST_OP..=LAST_OP => Some(self.op()?),
            other => return Err(format!("a node type of 0 to 2 or 4 to 14, found {other}")),
        };
        let len = self.u16()?;
        let name = utf8(self.bytes.take(len)?)?;
        let [rank] = self.bytes.array()?;
        let mut shape = crate::Shape::scalar();
        for _ in 0..rank {
            shape.push(decode_dim(&mut self.bytes)?);
        }
        let mut dtype = DType::F32;
        dtype.decode(&mut self.bytes)?;
        let name_of = code.map_or("node", |code| code.def().name);
        shape.check(name_of, dtype).map_err(|e| format!("a tensor that fits in memory: {e}"))?;
        let layout = StoredLayout::decode(&mut self.bytes)?;
        let count = self.u16()?;
        let inputs = (0..count).map(|_| self.operand()).collect::<Read<_>>()?;
        Ok(Record { code, name, spec: TensorSpec { shape, dtype }, layout, inputs })
    }

    fn op(&mut self) -> Read<OpCode> {
        let [code] = self.bytes.array()?;
        let name = match code {
            EXTENDED => {
                let len = self.u16()?;
                utf8(self.bytes.take(len)?)?
            }
            code => {
                let name = OPS.get(code as usize);
                name.ok_or_else(|| format!("an op code below {}, found {code}", OPS.len()))?
                    .to_string()
            }
        };
        op_named(&name).ok_or_else(|| format!("the name of an op, found '{name}'"))
    }

    /// Reads attributes and hints from their section. Without the section, uses the default
    /// attributes of the text form.
    fn attributes(&mut self, record: &Record) -> Read<(Attrs, Vec<(String, String)>)> {
        let code = record.code.unwrap_or(OpCode::Input);
        let mut attrs = code.blank_attrs();
        if self.flags & ATTRIBUTES == 0 {
            let first = record.inputs.first().map(|&i| self.file.graph.spec(i));
            let cx = Context {
                rank: first.map(|spec| spec.shape.rank()),
                dtype: Some(first.unwrap_or(&record.spec).dtype),
                result: Some(&record.spec.shape),
                ..Context::default()
            };
            attrs.fields_mut(&mut |_, field| match field.set_default(cx) {
                true => Ok(()),
                false => Err(format!("attributes of {}, found none", code.def().name)),
            })?;
            return Ok((attrs, Vec::new()));
        }
        let len = self.bytes.count(1)?;
        let mut section = Bytes { rest: self.bytes.take(len)?, ..self.bytes };
        match (section.array()?, &attrs) {
            ([0], _) => attrs = Attrs::None,
            ([1], _) => {}
            ([2], Attrs::Slice(_)) => attrs = Attrs::SliceOf(Default::default()),
            ([2], Attrs::Value(_)) => attrs = Attrs::OfSize(Default::default()),
            ([other], _) => {
                return Err(format!("0, 1 or 2 for the op's kind of attributes, found {other}"));
            }
        }
        attrs.fields_mut(&mut |_, field| field.decode(&mut section))?;
        let count = section.count(8)?;
        let mut hints = Vec::new();
        for _ in 0..count {
            hints.push((decode_text(&mut section)?, decode_text(&mut section)?));
        }
        match section.rest.len() {
            0 => Ok((attrs, hints)),
            more => Err(format!("the end of the attributes, found {more} more bytes")),
        }
    }

    /// Runs the op's checks and returns the node.
    fn checked(&self, record: &Record, attrs: Attrs) -> Read<Node> {
        let code = record.code.unwrap_or(OpCode::Input);
        let (op, spec) = (Op::new(code, attrs), record.spec.clone());
        if op.class() != Class::Leaf {
            // The attributes must be of the op's kind.
            let own = match (code.blank_attrs(), &op.attrs) {
                (Attrs::Slice(_), Attrs::SliceOf(_)) => op.attrs.clone(),
                (own, _) => own,
            };
            if std::mem::discriminant(&own) != std::mem::discriminant(&op.attrs) {
                return Err(format!("attributes of {}, found none", op.name()));
            }
            let graph = &self.file.graph;
            let specs: SmallVec<[&TensorSpec; 3]> =
                record.inputs.iter().map(|&i| graph.spec(i)).collect();
            let inferred = op.infer(&specs).map_err(|e| format!("a valid op: {e}"))?;
            if inferred.dtype != spec.dtype || !inferred.shape.equals(&spec.shape) {
                return Err(format!("{} to give {inferred}, found {spec}", op.name()));
            }
        }
        let node = Node { op, inputs: record.inputs.clone(), spec };
        if node.op.class() == Class::Leaf {
            crate::graph::verify_leaf(&node).map_err(|e| format!("a valid leaf: {e}"))?;
        }
        Ok(node)
    }

    /// A constant whose elements differ, as an input with data.
    fn unequal(&mut self, at: NodeId, node: Node, data: &[u8]) -> Node {
        self.file.data.insert(at, data.to_vec());
        Node { op: OpCode::Input.into(), ..node }
    }

    /// Reads the node's data, if the file has a data field for the node. A constant whose elements
    /// differ becomes an input with the hint `kind`.
    fn argument(&mut self, at: NodeId, mut node: Node) -> Read<Node> {
        let constant = node.op.code == OpCode::Constant;
        if !constant && (self.flags & DATA == 0 || node.op.class() != Class::Leaf) {
            return Ok(node);
        }
        let len = self.u64()?;
        if len == ABSENT {
            // There are no data, so no other check compares the value with the dtype.
            let fits = |bits: u64| match node.spec.dtype.size() {
                size @ 0..8 => bits >> (8 * size) == 0,
                _ => true,
            };
            return match node.op.attrs {
                Attrs::Value(bits) if !fits(bits) => Err("a value that the dtype holds".into()),
                _ => Ok(node),
            };
        }
        let len = usize::try_from(len).map_err(|_| format!("data, found a length of {len}"))?;
        let data = self.bytes.take(len)?;
        let element = node.spec.dtype.size();
        if constant && self.flags & ATTRIBUTES == 0 {
            expect_len(len, node.spec.size_bytes())?;
            return Ok(match splat(data, element) {
                Some(bits) => {
                    node.op.attrs = Attrs::Value(bits);
                    node
                }
                None => self.unequal(at, node, data),
            });
        }
        let all = len != element && !node.is_symbolic() && len == node.spec.size_bytes();
        if constant && node.op.attrs == Attrs::None && all && splat(data, element).is_none() {
            return Ok(self.unequal(at, node, data));
        }
        if let Attrs::Value(bits) = node.op.attrs {
            expect_len(len, element)?;
            let literal = Literal { dtype: node.spec.dtype, bits };
            let same = splat(data, element) == Some(literal.bits);
            return same.then_some(node).ok_or("data that are the attributes' value".into());
        }
        let size = data_size(&node).ok_or("no data for a node without an argument")?;
        expect_len(len, size)?;
        self.file.data.insert(at, data.to_vec());
        Ok(node)
    }
}

fn expect_len(found: usize, size: usize) -> Read<()> {
    match found == size {
        true => Ok(()),
        false => Err(format!("{size} bytes of data, found {found}")),
    }
}

/// The bits of the value that all elements share, if a literal can hold it.
pub(super) fn splat(data: &[u8], element: usize) -> Option<u64> {
    let first = data.get(..element).unwrap_or(&[]);
    let uniform = data.chunks(element.max(1)).all(|chunk| chunk == first);
    let fits = first.iter().skip(8).all(|&b| b == 0);
    let bits = first.iter().take(8).rev().fold(0, |bits, &b| bits << 8 | b as u64);
    (uniform && fits).then_some(bits)
}
