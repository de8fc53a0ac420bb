//! Signatures of custom ops: `T[m, k], T[k, n] -> T[m, n]`. A signature is the shape rule and the
//! dtype rule, and binds the names in braces in the kernels' text.

use girih_ir::{DType, Dim, Error, Result, Shape, TensorSpec};

/// The dtypes that each variable may be.
pub type DTypes = Vec<(String, Vec<DType>)>;

/// The op's name in errors.
const OP: &str = "custom";

fn invalid(reason: String) -> Error {
    Error::InvalidArgument { op: OP, reason }
}

/// An expression over sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Size {
    Number(usize),
    Name(String),
    Of(Box<Size>, char, Box<Size>),
}

/// A tensor's dtype, by name or a variable, and its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    dtype: String,
    sizes: Vec<Size>,
}

/// A signature and the dtypes of its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    text: String,
    operands: Vec<Pattern>,
    results: Vec<Pattern>,
    dtypes: DTypes,
}

/// The values of the names for some operands.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    sizes: Vec<(String, Dim)>,
    dtypes: Vec<(String, DType)>,
    /// Whether the sizes are examples, for a first check of the text: an invalid size then counts
    /// as 1.
    sample: bool,
}

impl Signature {
    /// Errors: an invalid signature; a dtype variable without dtypes, or dtypes for a name that is
    /// not a dtype variable; a result with a size or dtype that no operand has.
    pub fn parse(text: &str, dtypes: DTypes) -> Result<Signature> {
        let example = "expected a signature such as 'T[m, k], T[k, n] -> T[m, n]'";
        let wrong = |at: &str| invalid(format!("{example}, found '{at}' in '{text}'"));
        let (left, right) = text.split_once("->").ok_or_else(|| wrong(text))?;
        let side = |side: &str| -> Result<Vec<Pattern>> {
            let mut rest = side.trim();
            let mut patterns = Vec::new();
            while !rest.is_empty() {
                let (dtype, inner) = rest.split_once('[').ok_or_else(|| wrong(rest))?;
                let (inner, after) = inner.split_once(']').ok_or_else(|| wrong(rest))?;
                let dtype = dtype.trim().to_string();
                if !is_name(&dtype) {
                    return Err(wrong(rest));
                }
                let sizes = inner.split(',').map(str::trim).filter(|_| !inner.trim().is_empty());
                let sizes: Option<Vec<Size>> = sizes.map(Size::parse).collect();
                patterns.push(Pattern { dtype, sizes: sizes.ok_or_else(|| wrong(rest))? });
                rest = after.trim();
                rest = match rest.strip_prefix(',') {
                    Some(more) if !more.trim().is_empty() => more.trim(),
                    _ if rest.is_empty() => rest,
                    _ => return Err(wrong(rest)),
                };
            }
            if patterns.is_empty() { Err(wrong(side)) } else { Ok(patterns) }
        };
        let (operands, results) = (side(left)?, side(right)?);
        let signature = Signature { text: text.trim().to_string(), operands, results, dtypes };
        signature.check()?;
        Ok(signature)
    }

    /// Fails unless every name of a result is a name of an operand, and every variable has dtypes.
    fn check(&self) -> Result<()> {
        let text = &self.text;
        for pattern in self.operands.iter().chain(&self.results) {
            let known = self.dtypes.iter().any(|(name, _)| *name == pattern.dtype);
            if !known && DType::parse(&pattern.dtype).is_err() {
                let name = &pattern.dtype;
                return Err(invalid(format!(
                    "'{name}' in '{text}' is no dtype; say which dtypes it stands for (dtypes of '{name}')"
                )));
            }
        }
        for (name, dtypes) in &self.dtypes {
            if dtypes.is_empty() || !self.operands.iter().any(|p| p.dtype == *name) {
                let reason = format!(
                    "dtypes are given for '{name}', which no operand in '{text}' has, or none is"
                );
                return Err(invalid(reason));
            }
        }
        let mut named = Vec::new();
        for size in self.operands.iter().flat_map(|p| &p.sizes) {
            match size {
                Size::Name(name) => named.push(name.as_str()),
                Size::Number(_) => {}
                Size::Of(..) => {
                    let reason = format!(
                        "sizes of operands in '{text}' are names or numbers; results have expressions"
                    );
                    return Err(invalid(reason));
                }
            }
        }
        for pattern in &self.results {
            let mut missing = None;
            pattern.sizes.iter().for_each(|size| {
                size.names(&mut |name| {
                    missing = missing.or((!named.contains(&name)).then_some(name))
                });
            });
            if let Some(name) = missing {
                return Err(invalid(format!("'{name}' in '{text}' is a size of no operand")));
            }
            let variable = self.dtypes.iter().any(|(name, _)| *name == pattern.dtype);
            if variable && !self.operands.iter().any(|p| p.dtype == pattern.dtype) {
                let name = &pattern.dtype;
                return Err(invalid(format!("'{name}' in '{text}' is the dtype of no operand")));
            }
        }
        Ok(())
    }

    /// The text of the signature.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of operands.
    pub fn operands(&self) -> usize {
        self.operands.len()
    }

    /// The dtypes of variables, as text.
    pub fn dtypes_text(&self) -> String {
        let one = |(name, dtypes): &(String, Vec<DType>)| {
            let list: Vec<&str> = dtypes.iter().map(|d| d.short()).collect();
            format!("{name} in {}", list.join(", "))
        };
        self.dtypes.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Binds the names to the specs of operands.
    ///
    /// Errors: a number of operands, ranks, sizes or dtypes that differ from the signature's.
    pub fn bind(&self, name: &str, operands: &[&TensorSpec]) -> Result<Bound> {
        let text = &self.text;
        let refuse = |reason: String| {
            Err(invalid(format!("'{name}' takes {text}{}; {reason}", self.with_dtypes())))
        };
        if operands.len() != self.operands.len() {
            return refuse(format!(
                "expected {} operands, got {}",
                self.operands.len(),
                operands.len()
            ));
        }
        let mut bound = Bound::default();
        for (i, (pattern, spec)) in self.operands.iter().zip(operands).enumerate() {
            if pattern.sizes.len() != spec.shape.rank() {
                return refuse(format!("operand {i} is {spec}, of another rank"));
            }
            if !self.bind_dtype(&mut bound, pattern, spec.dtype) {
                return refuse(format!("operand {i} is {spec}, of another dtype"));
            }
            for (size, dim) in pattern.sizes.iter().zip(spec.shape.dims()) {
                let agrees = match size {
                    Size::Number(n) => dim.is(*n),
                    Size::Name(name) => match bound.sizes.iter().find(|(known, _)| known == name) {
                        Some((_, known)) => known.equals(dim),
                        None => {
                            bound.sizes.push((name.clone(), dim));
                            true
                        }
                    },
                    Size::Of(..) => false,
                };
                if !agrees {
                    return refuse(format!("operand {i} is {spec}, of another size"));
                }
            }
        }
        Ok(bound)
    }

    fn with_dtypes(&self) -> String {
        let dtypes = self.dtypes_text();
        if dtypes.is_empty() { dtypes } else { format!(" with {dtypes}") }
    }

    fn bind_dtype(&self, bound: &mut Bound, pattern: &Pattern, dtype: DType) -> bool {
        let variable = self.dtypes.iter().find(|(name, _)| *name == pattern.dtype);
        let Some((name, allowed)) = variable else {
            return DType::parse(&pattern.dtype) == Ok(dtype);
        };
        match bound.dtypes.iter().find(|(known, _)| known == name) {
            Some((_, known)) => *known == dtype,
            None => {
                bound.dtypes.push((name.clone(), dtype));
                allowed.contains(&dtype)
            }
        }
    }

    /// The specs of the results.
    ///
    /// Errors: a size that is negative, divided by zero, or too large.
    pub fn results(&self, name: &str, bound: &Bound) -> Result<Vec<TensorSpec>> {
        let result = |pattern: &Pattern| {
            let sizes: Option<Vec<Dim>> = pattern.sizes.iter().map(|s| s.dim(bound)).collect();
            let sizes = sizes.ok_or_else(|| {
                let (text, sizes) = (&self.text, bound.text());
                invalid(format!("'{name}': a result of {text} has no size with {sizes}"))
            })?;
            let dtype = bound.dtype(&pattern.dtype).expect("the signature has been checked");
            let shape = Shape::of_dims(sizes);
            shape.check(OP, dtype)?;
            Ok(TensorSpec { shape, dtype })
        };
        self.results.iter().map(result).collect()
    }

    /// Example sizes with each combination of dtypes, for a first check of a text.
    pub fn samples(&self) -> Vec<Bound> {
        let mut names: Vec<&String> = Vec::new();
        for size in self.operands.iter().flat_map(|p| &p.sizes) {
            if let Size::Name(name) = size
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        let sizes = names.iter().enumerate();
        let sizes = sizes.map(|(i, name)| (name.to_string(), Dim::from(2 + i))).collect();
        let mut samples = vec![Bound { sizes, dtypes: Vec::new(), sample: true }];
        for (name, dtypes) in &self.dtypes {
            let with = |sample: &Bound| {
                let one = |&dtype: &DType| {
                    let mut sample = sample.clone();
                    sample.dtypes.push((name.clone(), dtype));
                    sample
                };
                dtypes.iter().map(one).collect::<Vec<_>>()
            };
            samples = samples.iter().flat_map(with).collect();
        }
        samples
    }
}

impl Bound {
    fn dtype(&self, name: &str) -> Option<DType> {
        let bound = self.dtypes.iter().find(|(known, _)| known == name);
        bound.map(|(_, dtype)| *dtype).or_else(|| DType::parse(name).ok())
    }

    /// The names of sizes with their values, for messages.
    pub fn text(&self) -> String {
        let all: Vec<String> = self.sizes.iter().map(|(n, d)| format!("{n} = {d}")).collect();
        if all.is_empty() { "no sizes".into() } else { all.join(", ") }
    }

    /// Replaces the braces in a text: `{T}` by a dtype, `{m*k}` by a number.
    ///
    /// Errors: a brace that is not closed, a name that is not bound, an invalid size.
    pub fn fill(&self, name: &str, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            out.push_str(before);
            let inside = after.split_once('}').filter(|(inside, _)| !inside.contains(['\n', '{']));
            let Some((inside, behind)) = inside else {
                let line = after.lines().next().unwrap_or_default();
                return Err(invalid(format!(
                    "the kernel of '{name}': '{{{line}' is not closed on its line"
                )));
            };
            out.push_str(&self.value(name, inside.trim())?);
            rest = behind;
        }
        out.push_str(rest);
        Ok(out)
    }

    fn value(&self, name: &str, inside: &str) -> Result<String> {
        if let Some((_, dtype)) = self.dtypes.iter().find(|(known, _)| known == inside) {
            return Ok(dtype.short().to_string());
        }
        let size = Size::parse(inside);
        let mut unknown = None;
        if let Some(size) = &size {
            size.names(&mut |n| {
                let known = self.sizes.iter().any(|(known, _)| known == n);
                unknown = unknown.take().or((!known).then(|| n.to_string()));
            });
        }
        if let (Some(size), None) = (size, &unknown) {
            match size.number(self) {
                Some(value) if !self.sample => return Ok(value.to_string()),
                value if self.sample => return Ok(value.unwrap_or(1).max(1).to_string()),
                _ => {}
            }
        }
        let dtypes = self.dtypes.iter().map(|(n, _)| n.as_str());
        let known: Vec<&str> = self.sizes.iter().map(|(n, _)| n.as_str()).chain(dtypes).collect();
        Err(invalid(format!(
            "the kernel of '{name}' has {{{inside}}}; expected a dtype or a size of the signature ({}), or \
             sizes with + - * // that give a number ({})",
            known.join(", "),
            self.text()
        )))
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Size {
    /// Sums and differences of products and quotients (`//`) of numbers, names and parentheses.
    fn parse(text: &str) -> Option<Size> {
        let mut rest = text;
        let size = Size::sum(&mut rest, 0)?;
        rest.trim().is_empty().then_some(size)
    }

    fn sum(rest: &mut &str, depth: usize) -> Option<Size> {
        let mut size = Size::product(rest, depth)?;
        while let Some(op) = rest.trim_start().chars().next().filter(|c| "+-".contains(*c)) {
            *rest = &rest.trim_start()[1..];
            size = Size::Of(Box::new(size), op, Box::new(Size::product(rest, depth)?));
        }
        Some(size)
    }

    fn product(rest: &mut &str, depth: usize) -> Option<Size> {
        let mut size = Size::factor(rest, depth)?;
        loop {
            let text = rest.trim_start();
            let (op, after) = match (text.strip_prefix('*'), text.strip_prefix("//")) {
                (Some(after), _) => ('*', after),
                (_, Some(after)) => ('/', after),
                _ => return Some(size),
            };
            *rest = after;
            size = Size::Of(Box::new(size), op, Box::new(Size::factor(rest, depth)?));
        }
    }

    fn factor(rest: &mut &str, depth: usize) -> Option<Size> {
        let text = rest.trim_start();
        if let Some(inside) = text.strip_prefix('(').filter(|_| depth < 16) {
            *rest = inside;
            let size = Size::sum(rest, depth + 1)?;
            *rest = rest.trim_start().strip_prefix(')')?;
            return Some(size);
        }
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (word, after) = text.split_at(end);
        *rest = after;
        match word.parse() {
            Ok(number) => Some(Size::Number(number)),
            Err(_) => is_name(word).then(|| Size::Name(word.to_string())),
        }
    }

    fn names<'a>(&'a self, each: &mut impl FnMut(&'a str)) {
        match self {
            Size::Number(_) => {}
            Size::Name(name) => each(name),
            Size::Of(a, _, b) => {
                a.names(each);
                b.names(each);
            }
        }
    }

    /// The value, if all sizes are numbers.
    fn number(&self, bound: &Bound) -> Option<i64> {
        match self {
            Size::Number(n) => i64::try_from(*n).ok(),
            Size::Name(name) => {
                let (_, dim) = bound.sizes.iter().find(|(known, _)| known == name)?;
                i64::try_from(dim.known()?).ok()
            }
            Size::Of(a, op, b) => {
                let (a, b) = (a.number(bound)?, b.number(bound)?);
                match op {
                    '+' => a.checked_add(b),
                    '-' => a.checked_sub(b),
                    '*' => a.checked_mul(b),
                    _ => a.checked_div_euclid(b),
                }
            }
        }
    }

    /// The value as a size, which may be symbolic.
    fn dim(&self, bound: &Bound) -> Option<Dim> {
        if let Some(number) = self.number(bound) {
            return usize::try_from(number).ok().map(Dim::from);
        }
        match self {
            Size::Number(n) => Some(Dim::from(*n)),
            Size::Name(name) => bound.sizes.iter().find(|(k, _)| k == name).map(|(_, dim)| *dim),
            Size::Of(a, op, b) => {
                let (a, b) = (a.dim(bound)?, b.dim(bound)?);
                match op {
                    '+' => Some(a + b),
                    '-' => a.at_least(b).then(|| a - b),
                    '*' => Some(a * b),
                    _ => (!b.is(0)).then(|| a.floor_div(b)),
                }
            }
        }
    }
}
