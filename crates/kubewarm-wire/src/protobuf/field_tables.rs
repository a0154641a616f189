//! The fields of every built-in kind: their numbers in protobuf, and their names and order in JSON.
//!
//! Protobuf bytes contain no JSON names, and Kubernetes' `.proto` files do not state when Go omits
//! a field from JSON. So `make generate` reads both from Kubernetes' Go types, and writes
//! `tables.txt`.

use kubewarm_api::model::MessageId;
use std::{collections::HashMap, sync::LazyLock};

#[derive(Debug, Default)]
pub(super) struct FieldTables {
    messages: Vec<MessageTable>,
    kinds: HashMap<(&'static str, &'static str), MessageId>,
}

#[derive(Debug, Default)]
pub(super) struct MessageTable {
    pub(super) name: &'static str,
    /// The fields in the order of Go's struct, which is their order in JSON.
    pub(super) fields: Vec<MessageField>,
    /// The position in `fields` for each field number, as an index; `NO_FIELD` for a number that
    /// the message does not have.
    by_number: Vec<u16>,
    /// One bit for each position in `fields`: 1 if JSON contains the field even when protobuf lacks
    /// it, because Go writes its zero value.
    pub(super) written_if_absent: u64,
}

#[derive(Debug)]
pub(super) struct MessageField {
    pub(super) number: u32,
    /// The name in JSON. Empty for an inline field, whose members JSON writes into the parent
    /// object.
    pub(super) name: &'static str,
    /// The name as JSON writes it: with quotes and a colon.
    pub(super) quoted: Box<[u8]>,
    pub(super) omission: OmissionRule,
    pub(super) is_pointer: bool,
    pub(super) shape: FieldCardinality,
    pub(super) kind: FieldType,
    /// Members with which JSON begins each element of the list, although protobuf lacks them; empty
    /// except for the field in `CLAIM_TEMPLATES`.
    pub(super) element_start: &'static [u8],
}

/// The only field with an `element_start`, and its text. The API server writes the kind of the
/// claims in a `StatefulSet` into JSON, but the kind of no other nested object.
const CLAIM_TEMPLATES: (&str, &[u8]) =
    ("volumeClaimTemplates", br#""kind":"PersistentVolumeClaim","apiVersion":"v1","#);

/// When Go leaves a field out of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OmissionRule {
    Never,
    /// `omitempty`: if the value is false, 0, an empty text, an empty list, an empty map, or an
    /// absent pointer.
    Empty,
    /// `omitzero`: if the time is Go's zero time.
    ZeroTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldCardinality {
    Single,
    Repeated,
    /// A map whose keys are strings.
    Map,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldType {
    String,
    Bytes,
    Bool,
    Int,
    /// `metav1.Time`: seconds since 1970. JSON has RFC 3339.
    Time,
    /// `metav1.MicroTime`: like `Time`, with microseconds.
    MicroTime,
    IntOrString,
    Quantity,
    /// JSON in a message of one field: `runtime.RawExtension` and `metav1.FieldsV1`.
    Raw,
    Message(MessageId),
    /// A list in a message of its own, such as `authentication/v1.ExtraValue`.
    List(Box<Self>),
}

const NO_FIELD: u16 = u16::MAX;
/// Limit of the field numbers, which bounds the memory of `by_number`. Higher than the highest
/// field number of Kubernetes' messages.
const MAX_NUMBER: u32 = 10_000;

/// The field tables in `tables.txt`, for one Kubernetes release. Empty if `tables.txt` is invalid,
/// but a test checks that it is valid.
pub(super) static TABLES: LazyLock<FieldTables> =
    LazyLock::new(|| FieldTables::parse(include_str!("tables.txt")).unwrap_or_default());

/// Returns the message of a built-in kind, or `None` if the tables do not contain the kind.
pub fn message_of_kind(api_version: &str, kind: &str) -> Option<MessageId> {
    TABLES.kinds.get(&(api_version, kind)).copied()
}

/// Returns `apiVersion` and `kind` of a message, or `None` if the message is part of kinds only. If
/// several kinds have the message, returns one of them.
pub fn kind_of_message(message: MessageId) -> Option<(&'static str, &'static str)> {
    let mut kinds = TABLES.kinds.iter();
    kinds.find(|(_, known)| **known == message).map(|(kind, _)| *kind)
}

/// Returns the field table of a message. For a number that the tables lack, returns a table without
/// fields.
pub(super) fn table(message: MessageId) -> &'static MessageTable {
    static NONE: MessageTable =
        MessageTable { name: "", fields: Vec::new(), by_number: Vec::new(), written_if_absent: 0 };
    TABLES.messages.get(usize::from(message.0)).unwrap_or(&NONE)
}

impl MessageTable {
    /// Returns the position in `fields` of the field with this number.
    #[inline]
    pub(super) fn position(&self, number: u32) -> Option<usize> {
        let position = *self.by_number.get(number as usize)?;
        (position != NO_FIELD).then_some(usize::from(position))
    }

    pub(super) fn field(&self, number: u32) -> Option<&MessageField> {
        self.fields.get(self.position(number)?)
    }

    /// Fills `by_number` and `written_if_absent`. Returns `None` if the message has more than 64
    /// fields, because `written_if_absent` has 64 bits.
    fn index(&mut self) -> Option<()> {
        for (position, field) in self.fields.iter().enumerate() {
            let bit = 1_u64.checked_shl(u32::try_from(position).ok()?)?;
            if field.is_written_if_absent() {
                self.written_if_absent |= bit;
            }
            let number = field.number as usize;
            if self.by_number.len() <= number {
                self.by_number.resize(number + 1, NO_FIELD);
            }
            *self.by_number.get_mut(number)? = u16::try_from(position).ok()?;
        }
        Some(())
    }
}

impl FieldTables {
    /// Parses the generated text: a line for each kind, and a line for each message, followed by a
    /// line for each of its fields. Returns `None` if the text is invalid.
    fn parse(text: &'static str) -> Option<Self> {
        let lines = || text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let names = lines().filter_map(|line| line.strip_prefix("message ")).enumerate();
        let ids: HashMap<&str, MessageId> = names
            .map(|(number, name)| Some((name, MessageId(u16::try_from(number).ok()?))))
            .collect::<Option<_>>()?;
        let mut tables = Self::default();
        for line in lines() {
            let words: Vec<&'static str> = line.split(' ').collect();
            match *words.as_slice() {
                ["kind", api_version, kind, message] => {
                    tables.kinds.insert((api_version, kind), *ids.get(message)?);
                }
                ["message", name] => {
                    tables.messages.push(MessageTable { name, ..MessageTable::default() });
                }
                [number, name, omission, kind] => {
                    let field = MessageField::parse([number, name, omission, kind], &ids)?;
                    tables.messages.last_mut()?.fields.push(field);
                }
                _ => return None,
            }
        }
        tables.messages.iter_mut().try_for_each(MessageTable::index)?;
        Some(tables)
    }
}

impl MessageField {
    fn parse(
        [number, name, omission, kind]: [&'static str; 4],
        ids: &HashMap<&str, MessageId>,
    ) -> Option<Self> {
        let (is_pointer, kind) = kind.strip_prefix('*').map_or((false, kind), |kind| (true, kind));
        let (shape, kind) = if let Some(element) = kind.strip_prefix("[]") {
            (FieldCardinality::Repeated, element)
        } else if let Some(value) = kind.strip_prefix("map:") {
            (FieldCardinality::Map, value)
        } else {
            (FieldCardinality::Single, kind)
        };
        let (name, omission) = match (name, omission) {
            (".", _) => ("", OmissionRule::Never),
            (name, "-") => (name, OmissionRule::Never),
            (name, "omitempty") => (name, OmissionRule::Empty),
            (name, "omitzero") if kind == "Time" => (name, OmissionRule::ZeroTime),
            _ => return None,
        };
        let (claims, claim_start) = CLAIM_TEMPLATES;
        let number = number.parse().ok().filter(|number| (1..MAX_NUMBER).contains(number))?;
        Some(Self {
            number,
            name,
            quoted: format!("\"{name}\":").into_bytes().into(),
            omission,
            is_pointer,
            shape,
            kind: FieldType::parse(kind, ids)?,
            element_start: if name == claims { claim_start } else { b"" },
        })
    }

    /// Whether the members of the field's value belong to the parent object.
    pub(super) fn is_inline(&self) -> bool {
        self.name.is_empty()
    }

    /// Whether Go distinguishes an absent field (nil) from a field with a zero value, as for
    /// pointers, lists and maps.
    pub(super) fn has_nil(&self) -> bool {
        self.is_pointer || self.shape != FieldCardinality::Single
    }

    /// Whether JSON can contain the field although protobuf lacks it.
    pub(super) fn is_written_if_absent(&self) -> bool {
        if self.is_inline() {
            return !self.is_pointer;
        }
        match self.omission {
            OmissionRule::Never => true,
            OmissionRule::ZeroTime => false,
            // To Go, a struct is never empty, so `omitempty` does not omit it.
            OmissionRule::Empty => !self.has_nil() && !self.kind.has_empty_value(),
        }
    }
}

impl FieldType {
    /// Whether Go's `omitempty` omits some values of this type.
    pub(super) fn has_empty_value(&self) -> bool {
        match self {
            Self::String | Self::Bytes | Self::Bool | Self::Int | Self::List(_) => true,
            Self::Time
            | Self::MicroTime
            | Self::IntOrString
            | Self::Quantity
            | Self::Raw
            | Self::Message(_) => false,
        }
    }

    fn parse(text: &str, ids: &HashMap<&str, MessageId>) -> Option<Self> {
        Some(match text {
            "string" => Self::String,
            "bytes" => Self::Bytes,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "Time" => Self::Time,
            "MicroTime" => Self::MicroTime,
            "IntOrString" => Self::IntOrString,
            "Quantity" => Self::Quantity,
            "Raw" => Self::Raw,
            _ => match text.strip_prefix("list:") {
                Some(element) => Self::List(Box::new(Self::parse(element, ids)?)),
                None => Self::Message(*ids.get(text)?),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_tables_contain_every_served_kind_and_are_consistent() {
        let tables = FieldTables::parse(include_str!("tables.txt")).unwrap();
        assert!(tables.kinds.len() > 250, "{}", tables.kinds.len());
        for (api_version, kind) in [("v1", "Pod"), ("apps/v1", "DeploymentList"), ("v1", "Status")]
        {
            let id = message_of_kind(api_version, kind).unwrap();
            assert!(table(id).name.ends_with(kind), "{kind}");
        }
        for message in &tables.messages {
            let numbers: HashSet<_> = message.fields.iter().map(|field| field.number).collect();
            assert_eq!(numbers.len(), message.fields.len(), "{}", message.name);
            for field in &message.fields {
                let entry = message.field(field.number).unwrap();
                assert_eq!(entry.name, field.name);
                let is_message = matches!(field.kind, FieldType::Message(_));
                assert!(!field.is_inline() || is_message);
            }
        }
        let pod = table(message_of_kind("v1", "Pod").unwrap());
        let fields: Vec<_> = pod.fields.iter().map(|field| (field.number, field.name)).collect();
        assert_eq!(fields, [(1, "metadata"), (2, "spec"), (3, "status")]);
        assert!(message_of_kind("v1", "Wart").is_none());
    }

    /// The encoder and `check_message` recurse once for each nested message. A message that
    /// contains itself could overflow the stack.
    #[test]
    fn no_message_contains_itself() {
        fn visit(id: MessageId, above: &mut Vec<MessageId>, done: &mut HashSet<MessageId>) {
            assert!(!above.contains(&id), "{} contains itself", table(id).name);
            if done.insert(id) {
                above.push(id);
                for field in &table(id).fields {
                    if let FieldType::Message(inner) = field.kind {
                        visit(inner, above, done);
                    }
                }
                above.pop();
            }
        }
        let mut done = HashSet::new();
        for number in 0..TABLES.messages.len() {
            visit(MessageId(u16::try_from(number).unwrap()), &mut Vec::new(), &mut done);
        }
        assert_eq!(done.len(), TABLES.messages.len());
    }

    #[test]
    fn invalid_tables_are_rejected() {
        for text in [
            "1 a - string",
            "message a\n0 a - string",
            "message a\n1 a - strings",
            "message a\n1 a sometimes string",
            "message a\nx a - string",
            "kind v1 A a",
            "other",
        ] {
            assert!(FieldTables::parse(text).is_none(), "{text}");
        }
    }
}
