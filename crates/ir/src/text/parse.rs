//! The parser of the text form. Each line is one node. The fields of an op's attributes parse
//! themselves, so the parser names no op except the leaf `constant`.

use super::RUNTIME;
use super::cursor::{Call, Cursor, Lexeme};
use crate::dim::{Guard, Guards, Symbol};
use crate::ops::control::{MAX_DEPTH, Regions};
use crate::ops::fields::Context;
use crate::ops::{Attrs, Class};
use crate::pfgb::{LAYOUT, StoredLayout};
use crate::sharding::{DeviceMesh, Sharding};
use crate::{DType, Error, Graph, Node, NodeId, Op, OpCode, Result, Shape, TensorSpec};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::sync::Arc;

impl Graph {
    /// Parses a graph; the inverse of printing. The text may number nodes in any way; the graph
    /// numbers them from 0 in order.
    ///
    /// Errors: [`Error::Parse`] with line, column and what was expected.
    pub fn parse(text: &str) -> Result<Graph> {
        let (graph, ids, symbols) = (Graph::new(), HashMap::new(), Vec::new());
        let cursor = Cursor::new(text);
        let (guards, mesh) = (Vec::new(), None);
        let parser = Parser { cursor, depth: 0, graph, ids, symbols, guards, mesh };
        let decided = Guards::new();
        let entered = decided.enter();
        let mut graph = parser.graph()?;
        drop(entered);
        // The decisions of shape rules about symbolic sizes become guards, as in tracing.
        let mut guards = graph.guards().to_vec();
        guards.extend(
            decided.collected().into_iter().filter(|guard| !graph.guards().contains(guard)),
        );
        graph.set_guards(guards);
        Ok(graph)
    }
}

impl FromStr for Graph {
    type Err = Error;

    fn from_str(text: &str) -> Result<Graph> {
        Graph::parse(text)
    }
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    /// Nesting depth of regions at the position.
    depth: usize,
    graph: Graph,
    /// Nodes by their number in the text.
    ids: HashMap<u32, NodeId>,
    /// The declared symbols.
    symbols: Vec<&'static Symbol>,
    guards: Vec<Guard>,
    mesh: Option<DeviceMesh>,
}

impl<'a> Deref for Parser<'a> {
    type Target = Cursor<'a>;

    fn deref(&self) -> &Cursor<'a> {
        &self.cursor
    }
}

impl DerefMut for Parser<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.cursor
    }
}

impl<'a> Parser<'a> {
    fn graph(mut self) -> Result<Graph> {
        self.keyword("Graph:")?;
        if self.accept("mesh:") {
            self.mesh = Some(crate::sharding::read_mesh(&mut self.cursor)?);
        }
        self.declarations()?;
        self.body()?;
        self.space();
        if !self.rest().is_empty() {
            return Err(self.expected("the end of the text"));
        }
        self.graph.set_guards(self.guards);
        Ok(self.graph)
    }

    /// `sizes: […]` and `guards: […]`, if present.
    fn declarations(&mut self) -> Result<()> {
        for keyword in ["sizes:", "guards:"] {
            if !self.accept(keyword) {
                continue;
            }
            self.space();
            let list = self.bracketed()?;
            let inside = &list.text[1..list.text.len() - 1];
            for item in inside.split(',').map(str::trim).filter(|item| !item.is_empty()) {
                let known = match keyword {
                    "sizes:" => Symbol::parse(item)
                        .filter(|new| self.symbols.iter().all(|s| s.name() != new.name()))
                        .map(|symbol| self.symbols.push(symbol)),
                    _ => Guard::parse(item, &self.symbols).map(|guard| self.guards.push(guard)),
                };
                let example = match keyword {
                    "sizes:" => "symbols, each once, such as batch=2 in 1..=64",
                    _ => "guards such as batch*2 >= 9",
                };
                let error = || self.error(list, format!("expected {example}, found '{item}'"));
                known.ok_or_else(error)?;
            }
        }
        Ok(())
    }

    /// Nodes, then outputs.
    fn body(&mut self) -> Result<()> {
        loop {
            self.space();
            if self.rest().starts_with("outputs") {
                break;
            }
            if !self.rest().starts_with('%') {
                return Err(self.expected("a node (%0 = …) or the outputs (outputs: [%0])"));
            }
            self.node()?;
        }
        self.keyword("outputs:")?;
        self.symbol("[")?;
        let (mut outputs, mut names) = (Vec::new(), Vec::new());
        let start = self.at;
        while !self.accept("]") {
            if !outputs.is_empty() {
                self.symbol(",")?;
            }
            self.space();
            if !self.rest().starts_with('%') {
                names.push(self.key("the name of an output, or a node such as %0")?);
                self.symbol("=")?;
            }
            let lexeme = self.label()?;
            outputs.push(self.lookup(lexeme)?);
        }
        self.graph.set_outputs(outputs);
        match names.is_empty() {
            true => Ok(()),
            false => {
                let named = self.graph.set_output_names(names);
                named.map_err(|error| self.error_at(start, error.to_string()))
            }
        }
    }

    /// The regions of a control op: in braces, or those of an earlier node.
    fn regions(&mut self) -> Result<Regions> {
        self.space();
        if self.rest().starts_with("as") {
            self.symbol("as")?;
            let label = self.label()?;
            let above = self.lookup(label)?;
            let Some((_, control)) = self.graph.node(above).op.as_control() else {
                return Err(self.error(label, format!("{} has no regions", label.text)));
            };
            return Ok(control.regions.clone());
        }
        let mut graphs = Vec::new();
        loop {
            let brace = Lexeme { at: self.at, text: "{" };
            if !self.accept("{") {
                return Ok(Regions::new(graphs));
            }
            if self.depth >= MAX_DEPTH {
                return Err(self.error(brace, format!("regions nest deeper than {MAX_DEPTH}")));
            }
            let graph = std::mem::take(&mut self.graph);
            let ids = std::mem::take(&mut self.ids);
            self.depth += 1;
            self.body()?;
            self.symbol("}")?;
            self.depth -= 1;
            graphs.push(std::mem::replace(&mut self.graph, graph));
            self.ids = ids;
            self.space();
        }
    }

    /// `%3 = op(…) -> […] {…}`
    fn node(&mut self) -> Result<()> {
        let label = self.label()?;
        self.symbol("=")?;
        let call = self.call()?;
        let code = OpCode::named(call.name.text);
        let code = code.map_err(|reason| self.error(call.name, reason))?;
        let node = match code.def().class {
            Class::Leaf => self.leaf(code, &call)?,
            _ => self.op(code, &call)?,
        };
        if self.ids.contains_key(&number(label)) {
            return Err(self.error(label, format!("{} is defined twice", label.text)));
        }
        if self.graph.len() >= u32::MAX as usize {
            return Err(self.error(label, "a graph holds at most 2^32 nodes".into()));
        }
        let id = self.graph.append(node);
        self.ids.insert(number(label), id);
        self.sharding(id)?;
        self.hints(id)
    }

    /// A leaf: shape and dtype, then attributes.
    fn leaf(&mut self, code: OpCode, call: &Call<'a>) -> Result<Node> {
        let [shape, dtype, rest @ ..] = call.plain.as_slice() else {
            let reason =
                format!("expected a shape and a dtype, as in {}([2, 3], f32)", code.def().name);
            return Err(self.error_at(call.end, reason));
        };
        let mut spec = TensorSpec::scalar(DType::F32);
        let symbols = self.symbols.clone();
        let cx = Context { symbols: &symbols, ..Context::default() };
        self.field(*shape, &mut spec.shape, cx)?;
        self.field(*dtype, &mut spec.dtype, cx)?;
        let checked = spec.shape.check(code.def().name, spec.dtype);
        checked.map_err(|e| self.error(*shape, e.to_string()))?;
        let runtime = code == OpCode::Constant && rest.len() == 1 && rest[0].text == RUNTIME;
        let attrs = if runtime && call.named.is_empty() {
            Attrs::None
        } else {
            let cx = Context { dtype: Some(spec.dtype), result: Some(&spec.shape), ..cx };
            self.attributes(code, rest, call, cx)?
        };
        let node = Node { op: Op::new(code, attrs), inputs: SmallVec::new(), spec };
        crate::graph::verify_leaf(&node).map_err(|reason| self.error(call.name, reason))?;
        Ok(node)
    }

    /// Any other op: operands, attributes, then the shape of the result.
    fn op(&mut self, code: OpCode, call: &Call<'a>) -> Result<Node> {
        let count = call.plain.iter().take_while(|p| p.text.starts_with('%')).count();
        let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
        for &operand in &call.plain[..count] {
            inputs.push(self.lookup(operand)?);
        }
        let regions = match code.def().class {
            Class::Control => Some(self.regions()?),
            _ => None,
        };
        self.symbol("->")?;
        self.space();
        let printed = self.bracketed()?;
        let mut shape = Shape::default();
        let symbols = self.symbols.clone();
        let cx = Context { symbols: &symbols, ..Context::default() };
        self.field(printed, &mut shape, cx)?;
        let first = inputs.first().map(|&i| self.graph.spec(i).clone());
        let cx = Context {
            rank: first.as_ref().map(|spec| spec.shape.rank()),
            dtype: first.map(|spec| spec.dtype),
            result: Some(&shape),
            ..cx
        };
        let mut attrs = self.attributes(code, &call.plain[count..], call, cx)?;
        if let (Attrs::Control { control, .. }, Some(regions)) = (&mut attrs, regions) {
            Arc::make_mut(control).regions = regions;
        }
        let op = Op::new(code, attrs);
        let specs: SmallVec<[&TensorSpec; 3]> =
            inputs.iter().map(|&i| self.graph.spec(i)).collect();
        let spec = op.infer(&specs).map_err(|e| self.error(call.name, e.to_string()))?;
        if !spec.shape.equals(&shape) {
            let reason = format!("the result has shape {}, not {shape}", spec.shape);
            return Err(self.error(printed, reason));
        }
        Ok(Node { op, inputs, spec })
    }

    /// `(<*, tp>)`, if present.
    fn sharding(&mut self, id: NodeId) -> Result<()> {
        if !self.accept("(") {
            return Ok(());
        }
        self.space();
        let at = self.at;
        let spec = crate::sharding::read_spec(&mut self.cursor)?;
        let text = Lexeme { at, text: &self.text[at..self.at] };
        self.symbol(")")?;
        let Some(mesh) = self.mesh.clone() else {
            let reason = "no mesh is declared; write mesh: @(…) below Graph:";
            return Err(self.error(text, reason.into()));
        };
        let sharding = Sharding::new(mesh, spec);
        let set = sharding.and_then(|sharding| self.graph.set_sharding(id, sharding));
        set.map_err(|error| self.error(text, error.to_string()))
    }

    /// `{key="value", …}`, if present.
    fn hints(&mut self, id: NodeId) -> Result<()> {
        if !self.accept("{") {
            return Ok(());
        }
        let mut first = true;
        while !self.accept("}") {
            if !std::mem::take(&mut first) {
                self.symbol(",")?;
            }
            self.space();
            let at = self.at;
            let key = self.key("a hint, key=\"value\"")?;
            self.symbol("=")?;
            self.space();
            let value_at = self.at;
            let value = self.string()?;
            if key == LAYOUT {
                let layout = StoredLayout::parse(&value, &self.graph.spec(id).shape);
                let layout =
                    layout.map_err(|e| self.error_at(value_at, format!("expected {e}")))?;
                if layout == StoredLayout::default() {
                    continue;
                }
            }
            if self.graph.hints(id).contains_key(&key) {
                return Err(self.error_at(at, format!("the hint '{key}' is given twice")));
            }
            self.graph.set_hint(id, key, value);
        }
        Ok(())
    }

    /// `%12`
    fn label(&mut self) -> Result<Lexeme<'a>> {
        self.space();
        let at = self.at;
        if self.rest().starts_with('%') {
            self.at += 1;
            let digits = self.until(|c| !c.is_ascii_digit());
            if digits.text.parse::<u32>().is_ok() {
                return Ok(Lexeme { at, text: &self.text[at..self.at] });
            }
        }
        self.at = at;
        Err(self.expected("a node, such as %0"))
    }

    fn lookup(&self, label: Lexeme<'a>) -> Result<NodeId> {
        let number = label.text.strip_prefix('%').and_then(|digits| digits.parse().ok());
        number.and_then(|number: u32| self.ids.get(&number)).copied().ok_or_else(|| {
            let reason =
                format!("{} is not defined above; operands precede their users", label.text);
            self.error(label, reason)
        })
    }

    fn keyword(&mut self, word: &str) -> Result<()> {
        self.symbol(word)
    }
}

fn number(label: Lexeme<'_>) -> u32 {
    label.text[1..].parse().expect("labels are checked when they are read")
}
