//! The text forms of meshes and specs, and their parsers. Each parser reads what `Display` writes.

use super::{AxisRef, DeviceMesh, DimSpec, Link, P, Sharding};
use crate::text::cursor::Cursor;
use crate::{Error, OpCode, Result, factors::Role};
use std::fmt::{self, Display};
use std::str::FromStr;

/// Writes items with commas between.
fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

/// Reads items up to a closing symbol, with commas between; a comma may follow the last.
fn items<'a, T>(
    c: &mut Cursor<'a>,
    close: &str,
    mut item: impl FnMut(&mut Cursor<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut items = Vec::new();
    while !c.accept(close) {
        if !items.is_empty() {
            c.symbol(",")?;
            if c.accept(close) {
                break;
            }
        }
        c.space();
        items.push(item(c)?);
    }
    Ok(items)
}

fn number<N: FromStr>(c: &mut Cursor<'_>) -> Result<N> {
    c.space();
    let start = c.at;
    let word = c.word();
    word.text.parse().map_err(|_| {
        c.at = start;
        c.expected("a number")
    })
}

fn name<'a>(c: &mut Cursor<'a>, what: &str) -> Result<&'a str> {
    c.space();
    let start = c.at;
    let word = c.word().text;
    if !crate::dim::is_name(word) {
        c.at = start;
        return Err(c.expected(what));
    }
    Ok(word)
}

/// Reads a whole text.
fn whole<T>(text: &str, read: impl FnOnce(&mut Cursor<'_>) -> Result<T>) -> Result<T> {
    let mut cursor = Cursor::new(text);
    let value = read(&mut cursor)?;
    cursor.space();
    match cursor.rest().is_empty() {
        true => Ok(value),
        false => Err(cursor.expected("the end of the text")),
    }
}

impl Display for AxisRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self.sub() {
            None => Ok(()),
            Some(sub) => write!(f, ":({}){}", sub.pre_size, sub.size),
        }
    }
}

fn axis(c: &mut Cursor<'_>) -> Result<AxisRef> {
    let name = name(c, "an axis")?;
    // The colon of an entry of `partial` has no parenthesis behind it.
    if !c.rest().starts_with(":(") {
        return Ok(AxisRef::new(name));
    }
    c.symbol(":(")?;
    let pre_size = number(c)?;
    c.symbol(")")?;
    Ok(AxisRef::sub_axis(name, pre_size, number(c)?))
}

impl FromStr for AxisRef {
    type Err = Error;

    /// Reads `x` or `x:(2)4`.
    fn from_str(text: &str) -> Result<AxisRef> {
        whole(text, axis)
    }
}

impl Display for DimSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.axes[..], self.is_open) {
            ([], true) => f.write_str("?")?,
            ([], false) => f.write_str("*")?,
            ([only], open) => write!(f, "{only}{}", if open { "?" } else { "" })?,
            (several, open) => {
                f.write_str("(")?;
                list(f, several, |f, axis| axis.fmt(f))?;
                f.write_str(if open { ")?" } else { ")" })?;
            }
        }
        match self.priority {
            0 => Ok(()),
            priority => write!(f, " p{priority}"),
        }
    }
}

fn dim(c: &mut Cursor<'_>) -> Result<DimSpec> {
    let mut dim = DimSpec::default();
    if c.accept("?") {
        dim.is_open = true;
    } else if c.accept("(") {
        dim.axes = items(c, ")", axis)?;
        if dim.axes.is_empty() {
            return Err(c.expected("one or more axes in the parentheses before"));
        }
    } else if !c.accept("*") {
        let entry = c.rest().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !entry {
            return Err(c.expected("an axis, several in parentheses, '*' or '?'"));
        }
        dim.axes = vec![axis(c)?];
    }
    dim.is_open |= !dim.axes.is_empty() && c.accept("?");
    if c.accept("p") {
        dim.priority = number(c)?;
    }
    Ok(dim)
}

impl FromStr for DimSpec {
    type Err = Error;

    /// Reads the text that `Display` writes.
    fn from_str(text: &str) -> Result<DimSpec> {
        whole(text, dim)
    }
}

impl Display for P {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<")?;
        list(f, &self.dims, |f, dim| dim.fmt(f))?;
        let mut separator = "; ";
        if !self.replicated.is_empty() {
            write!(f, "{separator}replicated={{")?;
            list(f, &self.replicated, |f, axis| axis.fmt(f))?;
            f.write_str("}")?;
            separator = ", ";
        }
        if !self.partial.is_empty() {
            write!(f, "{separator}partial={{")?;
            list(f, &self.partial, |f, (axis, op)| write!(f, "{axis}: {}", op.def().name))?;
            f.write_str("}")?;
        }
        f.write_str(">")
    }
}

fn combining(c: &mut Cursor<'_>) -> Result<OpCode> {
    c.space();
    let start = c.at;
    let word = c.word().text;
    Role::combining(word).ok_or_else(|| {
        c.at = start;
        let names: Vec<_> = Role::COMBINING.iter().map(|code| code.def().name).collect();
        c.expected(&format!("an op that combines partial values ({})", names.join(", ")))
    })
}

/// `replicated={x}` or `partial={x: add}`, after the entries of a spec.
fn field(c: &mut Cursor<'_>, spec: &mut P) -> Result<()> {
    let start = c.at;
    let field = name(c, "'replicated' or 'partial'")?;
    let twice = |c: &Cursor<'_>, at, axis: &AxisRef| {
        Err(c.error_at(at, format!("axis {axis} is in {field} twice; name it once")))
    };
    match field {
        "replicated" | "partial" => c.symbol("=").and_then(|()| c.symbol("{"))?,
        _ => {
            c.at = start;
            return Err(c.expected("'replicated' or 'partial'"));
        }
    }
    items(c, "}", |c| {
        let at = c.at;
        let axis = axis(c)?;
        if field == "replicated" {
            return match spec.replicated.insert(axis.clone()) {
                true => Ok(()),
                false => twice(c, at, &axis),
            };
        }
        c.symbol(":")?;
        match spec.partial.insert(axis.clone(), combining(c)?) {
            None => Ok(()),
            Some(_) => twice(c, at, &axis),
        }
    })?;
    Ok(())
}

/// Reads a spec at a cursor.
pub(crate) fn spec(c: &mut Cursor<'_>) -> Result<P> {
    let mut spec = P::default();
    c.symbol("<")?;
    while !c.accept(">") {
        if c.accept(";") {
            items(c, ">", |c| field(c, &mut spec))?;
            break;
        }
        if !spec.dims.is_empty() {
            c.symbol(",")?;
        }
        spec.dims.push(dim(c)?);
    }
    Ok(spec)
}

impl FromStr for P {
    type Err = Error;

    /// Reads the text that `Display` writes.
    fn from_str(text: &str) -> Result<P> {
        whole(text, spec)
    }
}

impl FromStr for Sharding {
    type Err = Error;

    /// Reads the text that `Display` writes: a spec and its mesh.
    fn from_str(text: &str) -> Result<Sharding> {
        let read = |c: &mut Cursor<'_>| {
            let spec = spec(c)?;
            c.symbol("on")?;
            Ok((spec, mesh(c)?))
        };
        let (spec, mesh) = whole(text, read)?;
        Sharding::new(mesh, spec)
    }
}

impl Display for DeviceMesh {
    /// The header of a text with shardings: `@m(shape=(2, 2), devices=[0, 1, 2, 3], axes=(dp, tp))`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}(shape=(", self.name().unwrap_or_default())?;
        let shape = self.shape();
        list(f, &shape, |f, size| size.fmt(f))?;
        f.write_str(if shape.len() == 1 { ",), devices=" } else { "), devices=" })?;
        match self.devices() {
            None => f.write_str("ghost")?,
            Some(devices) => {
                f.write_str("[")?;
                list(f, devices, |f, device| device.fmt(f))?;
                f.write_str("]")?;
            }
        }
        f.write_str(", axes=(")?;
        list(f, self.axes(), |f, axis| f.write_str(axis))?;
        f.write_str(")")?;
        let links: Vec<(&str, Link)> =
            self.axes().filter_map(|axis| Some((axis, self.link(axis)?))).collect();
        if !links.is_empty() {
            f.write_str(", topology={")?;
            list(f, links, |f, (axis, link)| {
                write!(f, "{axis}: ({:e}, {:e})", link.latency(), link.bandwidth())
            })?;
            f.write_str("}")?;
        }
        f.write_str(")")
    }
}

fn float(c: &mut Cursor<'_>) -> Result<f64> {
    c.space();
    let start = c.at;
    let word = c.until(|c| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
    word.text.parse().map_err(|_| {
        c.at = start;
        c.expected("a number")
    })
}

/// The axis, latency and bandwidth of an entry of `topology`.
fn link<'a>(c: &mut Cursor<'a>) -> Result<(&'a str, f64, f64)> {
    let axis = name(c, "an axis")?;
    c.symbol(":")?;
    c.symbol("(")?;
    let latency = float(c)?;
    c.symbol(",")?;
    let bandwidth = float(c)?;
    c.symbol(")")?;
    Ok((axis, latency, bandwidth))
}

fn field_name(c: &mut Cursor<'_>, field: &str) -> Result<()> {
    c.symbol(field)?;
    c.symbol("=")
}

/// Reads a mesh at a cursor.
pub(crate) fn mesh(c: &mut Cursor<'_>) -> Result<DeviceMesh> {
    c.symbol("@")?;
    let label = if c.rest().starts_with('(') { None } else { Some(name(c, "the mesh's name")?) };
    c.symbol("(")?;
    field_name(c, "shape")?;
    c.symbol("(")?;
    let shape = items(c, ")", number::<usize>)?;
    c.symbol(",")?;
    field_name(c, "devices")?;
    let devices = match c.accept("ghost") {
        true => None,
        false => {
            c.symbol("[")?;
            Some(items(c, "]", number::<u32>)?)
        }
    };
    c.symbol(",")?;
    field_name(c, "axes")?;
    c.symbol("(")?;
    let axes = items(c, ")", |c| name(c, "an axis"))?;
    let links = match c.accept(",") {
        true => {
            field_name(c, "topology")?;
            c.symbol("{")?;
            items(c, "}", link)?
        }
        false => Vec::new(),
    };
    c.symbol(")")?;
    let mut mesh = DeviceMesh::ghost_of(&shape, &axes)?;
    if let Some(label) = label {
        mesh = mesh.named(label)?;
    }
    if let Some(devices) = devices {
        mesh = mesh.with_devices(&devices)?;
    }
    for (axis, latency, bandwidth) in links {
        mesh = mesh.with_link(axis, Link::new(latency, bandwidth)?)?;
    }
    Ok(mesh)
}

impl FromStr for DeviceMesh {
    type Err = Error;

    /// Reads the text that `Display` writes.
    fn from_str(text: &str) -> Result<DeviceMesh> {
        whole(text, mesh)
    }
}
