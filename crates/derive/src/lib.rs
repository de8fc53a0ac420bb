//! `#[derive(Module)]`: lists the state of a struct for `girih::nn::Module`, field by field. What a
//! field is follows from its type as it is written, since a macro sees no other.
#![forbid(unsafe_code)]

use proc_macro::TokenStream as Tokens;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Attribute, Data, DeriveInput, Error, Field, Fields, GenericArgument, Ident, Index,
    PathArguments, Result, Type, TypeParamBound, parse_quote,
};

/// Derives `girih::nn::Module` for a struct: its parameters, buffers, modes and submodules, named by
/// their fields.
///
/// - A `Variable` is a parameter; with `#[module(buffer)]` it is saved and not trained.
/// - A `Mode` is the module's training mode.
/// - Numbers, `bool`, `String`, functions and `PhantomData` are settings, which are left out, and so
///   is a field with `#[module(skip)]`.
/// - `Option`, `Vec`, arrays, `Box` and `Arc` stand for what they hold; the elements of a list are
///   called `field.0`, `field.1`, ….
/// - Any other field is a module.
///
/// A name of a type alias says nothing, so that `#[module(parameter)]` marks a field whose alias is
/// a `Variable`. Type parameters are modules.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: Tokens) -> Tokens {
    let input = syn::parse_macro_input!(input as DeriveInput);
    module(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// How a field takes part in the state of its module.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Parameter,
    Buffer,
    Skip,
}

fn module(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let message = "derive(Module) is for structs; implement Module::visit for other types";
        return Err(Error::new(input.span(), message));
    };
    let fields = match &data.fields {
        Fields::Named(fields) => fields.named.iter().collect(),
        Fields::Unnamed(fields) => fields.unnamed.iter().collect(),
        Fields::Unit => Vec::new(),
    };
    let visits = fields.iter().enumerate().map(|(i, field)| visit(i, field));
    let visits = visits.collect::<Result<Vec<TokenStream>>>()?;
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(::girih::nn::Module));
    }
    let (name, (generics, arguments, bounds)) = (&input.ident, generics.split_for_impl());
    Ok(quote! {
        impl #generics ::girih::nn::Module for #name #arguments #bounds {
            fn visit<'visitor>(
                &'visitor self,
                visitor: &mut ::girih::nn::Visitor<'visitor>,
            ) {
                let _ = &visitor;
                #(#visits)*
            }
        }
    })
}

/// The statement that visits a field.
fn visit(number: usize, field: &Field) -> Result<TokenStream> {
    let role = role(&field.attrs)?;
    let (name, access) = match &field.ident {
        Some(ident) => (ident.to_string().trim_start_matches("r#").to_string(), quote!(#ident)),
        None => {
            let index = Index::from(number);
            (number.to_string(), quote!(#index))
        }
    };
    if role == Some(Role::Skip) || role.is_none() && is_setting(&field.ty) {
        return Ok(TokenStream::new());
    }
    Ok(part(&field.ty, role, &quote!(&self.#access), &quote!(#name), 0))
}

/// The statement that visits a value of a type, which `value` refers to, under a name.
fn part(
    ty: &Type,
    role: Option<Role>,
    value: &TokenStream,
    name: &TokenStream,
    depth: usize,
) -> TokenStream {
    let (item, at) = (format_ident!("item{depth}"), format_ident!("at{depth}"));
    let inner = format_ident!("name{depth}");
    if let Some(element) = list(ty) {
        let body = part(element, role, &quote!(#item), &quote!(&#inner), depth + 1);
        return quote! {
            for (#at, #item) in (#value).iter().enumerate() {
                let #inner = ::std::format!("{}.{}", #name, #at);
                #body
            }
        };
    }
    if let Some(held) = held(ty, &["Option"]) {
        let body = part(held, role, &quote!(#item), name, depth + 1);
        return quote! {
            if let ::std::option::Option::Some(#item) = #value {
                #body
            }
        };
    }
    if let Some(held) = held(ty, &["Box", "Arc"]) {
        return part(held, role, &quote!(&**(#value)), name, depth);
    }
    match (role, last(ty).map(Ident::to_string).as_deref()) {
        (Some(Role::Buffer), _) => quote!(visitor.buffer(#name, #value);),
        (Some(Role::Parameter), _) | (_, Some("Variable")) => {
            quote!(visitor.parameter(#name, #value);)
        }
        (_, Some("Mode")) => quote!(visitor.mode(#value);),
        _ => quote!(visitor.module(#name, #value);),
    }
}

const ROLES: [(&str, Role); 3] =
    [("parameter", Role::Parameter), ("buffer", Role::Buffer), ("skip", Role::Skip)];

fn role(attributes: &[Attribute]) -> Result<Option<Role>> {
    let mut role = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            let named = |(name, _): &&(&str, Role)| meta.path.is_ident(name);
            let found = ROLES.iter().find(named).map(|(_, role)| *role);
            role = Some(found.ok_or_else(|| meta.error("expected parameter, buffer or skip"))?);
            Ok(())
        })?;
    }
    Ok(role)
}

/// The last name of a type's path.
fn last(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

/// The type that one of these generic types holds.
fn held<'a>(ty: &'a Type, names: &[&str]) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    let named = names.iter().any(|name| segment.ident == name);
    arguments.args.iter().filter(|_| named).find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// The type of the elements of a list.
fn list(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Array(array) => Some(&array.elem),
        Type::Slice(slice) => Some(&slice.elem),
        _ => held(ty, &["Vec"]),
    }
}

/// The names of types that are settings of a module.
const SETTINGS: &str = "bool char str String u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize \
                        f32 f64 PhantomData DType";

/// Whether a type holds no state.
fn is_setting(ty: &Type) -> bool {
    if let Some(ty) = list(ty).or_else(|| held(ty, &["Option", "Box", "Arc"])) {
        return is_setting(ty);
    }
    match ty {
        Type::BareFn(_) => true,
        Type::Reference(reference) => is_setting(&reference.elem),
        Type::Tuple(tuple) => tuple.elems.iter().all(is_setting),
        Type::TraitObject(object) => object.bounds.iter().any(is_function),
        _ => last(ty).is_some_and(|name| SETTINGS.split_whitespace().any(|known| name == known)),
    }
}

/// Whether a bound is `Fn`, `FnMut` or `FnOnce`.
fn is_function(bound: &TypeParamBound) -> bool {
    let TypeParamBound::Trait(bound) = bound else { return false };
    bound.path.segments.last().is_some_and(|segment| segment.ident.to_string().starts_with("Fn"))
}
