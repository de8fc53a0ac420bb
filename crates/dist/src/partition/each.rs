//! A fact of each processor, stored once for all processors that have the same: of a thousand
//! processors that run one program, nearly all facts are equal.

use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// For each processor the number of its form; `None` if all have the first.
pub(super) type Forms = Option<Arc<[u32]>>;

/// A fact of each processor. Forms are numbered as they appear in the order of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Each<T> {
    distinct: Vec<T>,
    forms: Forms,
}

impl<T> Each<T> {
    /// The same on all processors.
    pub fn same(value: T) -> Each<T> {
        Each { distinct: vec![value], forms: None }
    }

    pub fn distinct(&self) -> &[T] {
        &self.distinct
    }

    pub fn forms(&self) -> &Forms {
        &self.forms
    }

    /// Another fact that follows from this one; `None` if one of them does not.
    pub fn map<U>(&self, f: impl FnMut(&T) -> Option<U>) -> Option<Each<U>> {
        let distinct = self.distinct.iter().map(f).collect::<Option<Vec<U>>>()?;
        Some(Each { distinct, forms: self.forms.clone() })
    }

    /// All of several facts of a processor.
    pub fn joined<'a>(all: &[&'a Each<T>]) -> Each<SmallVec<[&'a T; 4]>> {
        let mut forms = all.iter().filter_map(|each| each.forms.as_ref());
        let Some(first) = forms.next() else {
            return Each::same(all.iter().map(|each| &each.distinct[0]).collect());
        };
        if forms.all(|other| other == first) {
            // Nearly always, the tensors of an op are cut along the same axes.
            let fact = |each: &&'a Each<T>, form| {
                &each.distinct[if each.forms.is_some() { form } else { 0 }]
            };
            let most = all.iter().map(|each| each.distinct.len()).max().unwrap_or(0);
            let facts = |form| all.iter().map(|each| fact(each, form)).collect();
            return Each { distinct: (0..most).map(facts).collect(), forms: Some(first.clone()) };
        }
        let tuple = |position: usize| -> SmallVec<[u32; 4]> {
            let form = |each: &&Each<T>| each.forms.as_ref().map_or(0, |forms| forms[position]);
            all.iter().map(form).collect()
        };
        let tuples = Each::collect((0..first.len()).map(tuple));
        let facts = |tuple: &SmallVec<[u32; 4]>| {
            let fact = |(each, &form): (&&'a Each<T>, &u32)| &each.distinct[form as usize];
            Some(all.iter().zip(tuple).map(fact).collect())
        };
        tuples.map(facts).expect("each tuple has facts")
    }
}

impl<T: Eq + Hash + Clone> Each<T> {
    /// The facts of the processors, in order.
    pub fn collect(all: impl Iterator<Item = T>) -> Each<T> {
        let mut distinct: Vec<T> = Vec::new();
        let mut known: HashMap<T, u32> = HashMap::new();
        let mut forms = Vec::new();
        for value in all {
            if let (Some(last), Some(&form)) = (distinct.first(), forms.last())
                && form == 0
                && *last == value
            {
                forms.push(0);
                continue;
            }
            let form = *known.entry(value).or_insert_with_key(|value| {
                distinct.push(value.clone());
                distinct.len() as u32 - 1
            });
            forms.push(form);
        }
        let forms = (distinct.len() > 1).then(|| forms.into());
        Each { distinct, forms }
    }
}
