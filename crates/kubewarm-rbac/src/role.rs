//! The rules of a Role or ClusterRole.

use crate::{
    grants::boxed_bytes,
    request::{RequestSymbols, TargetSymbols},
    symbols::{Symbol, SymbolTable},
};
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The rules of one role. A role's `aggregationRule` has no effect here: a controller of Kubernetes
/// copies the rules of other roles into the role's own rules.
#[derive(Debug)]
pub(crate) struct RoleRules(Box<[RoleRule]>);

/// A rule, with the numbers of its texts.
#[derive(Debug)]
struct RoleRule {
    verbs: Box<[Symbol]>,
    api_groups: Box<[Symbol]>,
    /// Each is `*`, `RESOURCE`, `RESOURCE/SUBRESOURCE` or `*/SUBRESOURCE`.
    resources: Box<[Symbol]>,
    /// Empty if the rule applies to all objects and to requests that name no object.
    resource_names: Box<[Symbol]>,
    urls: Box<[UrlPattern]>,
}

/// A pattern of `nonResourceURLs`.
#[derive(Debug)]
enum UrlPattern {
    /// This path. A `*` that is not at the end has no special meaning.
    Exact(Box<str>),
    /// All paths that start with this text. In the rule, one or more `*` follow the text.
    Prefix(Box<str>),
}

impl RoleRules {
    /// Parses the rules of a role.
    pub(crate) fn parse(rules: &[PolicyRule], symbols: &mut SymbolTable) -> Self {
        Self(rules.iter().map(|rule| RoleRule::parse(rule, symbols)).collect())
    }

    /// Whether one of the rules allows the request to the users that have this role.
    pub(crate) fn allow(&self, request: &RequestSymbols<'_>) -> bool {
        self.0.iter().any(|rule| rule.allows(request))
    }

    /// The numbers of the texts that [`Self::parse`] has interned, which the caller releases when
    /// the role is removed.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = Symbol> {
        self.0.iter().flat_map(RoleRule::symbols)
    }

    /// An estimate of the memory in bytes that this value points to.
    pub(crate) fn heap_bytes(&self) -> usize {
        boxed_bytes(&self.0) + self.0.iter().map(RoleRule::heap_bytes).sum::<usize>()
    }
}

impl RoleRule {
    fn parse(rule: &PolicyRule, symbols: &mut SymbolTable) -> Self {
        let PolicyRule { api_groups, non_resource_urls, resource_names, resources, verbs } = rule;
        let mut intern = |texts: Option<&[String]>| -> Box<[Symbol]> {
            texts.unwrap_or_default().iter().map(|text| symbols.intern(text)).collect()
        };
        let urls = non_resource_urls.iter().flatten();
        Self {
            verbs: intern(Some(verbs)),
            api_groups: intern(api_groups.as_deref()),
            resources: intern(resources.as_deref()),
            resource_names: intern(resource_names.as_deref()),
            urls: urls.map(|url| UrlPattern::parse(url)).collect(),
        }
    }

    fn allows(&self, request: &RequestSymbols<'_>) -> bool {
        let is_target = match request.target {
            // Compare the API group first, because it excludes most rules of a large role.
            TargetSymbols::Resource { api_group, resource, subresource_of_all, name } => {
                has_or_is_all(&self.api_groups, api_group)
                    && (has_or_is_all(&self.resources, resource)
                        || self.resources.contains(&subresource_of_all))
                    && (self.resource_names.is_empty() || self.resource_names.contains(&name))
            }
            TargetSymbols::Path(path) => self.urls.iter().any(|pattern| pattern.matches(path)),
        };
        is_target && has_or_is_all(&self.verbs, request.verb)
    }

    /// The fields of numbers. With the destructuring, a new field does not compile until this
    /// function handles it.
    fn numbers(&self) -> [&[Symbol]; 4] {
        let Self { verbs, api_groups, resources, resource_names, urls: _ } = self;
        [verbs, api_groups, resources, resource_names]
    }

    fn symbols(&self) -> impl Iterator<Item = Symbol> {
        self.numbers().into_iter().flatten().copied()
    }

    fn heap_bytes(&self) -> usize {
        let numbers = self.numbers().into_iter().map(boxed_bytes).sum::<usize>();
        let texts = self.urls.iter().map(|pattern| match pattern {
            UrlPattern::Exact(text) | UrlPattern::Prefix(text) => boxed_bytes(text.as_bytes()),
        });
        numbers + boxed_bytes(&self.urls) + texts.sum::<usize>()
    }
}

impl UrlPattern {
    fn parse(url: &str) -> Self {
        if url.ends_with('*') {
            Self::Prefix(url.trim_end_matches('*').into())
        } else {
            Self::Exact(url.into())
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *path,
            Self::Prefix(prefix) => path.starts_with(&**prefix),
        }
    }
}

fn has_or_is_all(list: &[Symbol], wanted: Symbol) -> bool {
    list.iter().any(|&listed| listed == Symbol::ALL || listed == wanted)
}
