//! Namespaces: two configurations whose bytes differ never share, and two whose bytes are equal do.

use hicache_core::{DType, Digest, ErrorKind, Geometry, Identity, Namespace, PageLayout, PageOrder, Rank};
use proptest::prelude::*;

fn layout(dtype: DType, order: PageOrder) -> PageLayout {
    let geometry = Geometry::Mha { layers: 4, tokens: 64, heads: 2, head_dim: 128, dtype };
    PageLayout::new(geometry, order).unwrap()
}

fn identity() -> Identity {
    Identity {
        model: "org/model".to_owned(),
        revision: None,
        pool: "kv".to_owned(),
        layout: layout(DType::Bf16, PageOrder::PageFirst),
        tp: Rank { rank: 0, size: 2 },
        pp: Rank::ALONE,
        cp: Rank::ALONE,
        dcp: Rank::ALONE,
        replicated: false,
        heads: None,
    }
}

fn of(edit: impl FnOnce(&mut Identity)) -> Namespace {
    let mut identity = identity();
    edit(&mut identity);
    Namespace::of(&identity).unwrap()
}

fn digest(edit: impl FnOnce(&mut Identity)) -> Digest {
    of(edit).digest()
}

fn rank(rank: u32, size: u32) -> Rank {
    Rank { rank, size }
}

#[test]
fn ranks_whose_bytes_differ_never_share() {
    let digests = [
        digest(|_| ()),
        digest(|id| id.tp = rank(1, 2)),
        digest(|id| id.tp = rank(0, 4)),
        digest(|id| id.tp = Rank::ALONE),
        digest(|id| id.pp = rank(0, 2)),
        digest(|id| id.pp = rank(1, 2)),
        digest(|id| id.pp = rank(1, 4)),
        digest(|id| id.cp = rank(0, 2)),
        digest(|id| id.cp = rank(1, 2)),
        digest(|id| id.dcp = rank(0, 2)),
        digest(|id| id.dcp = rank(1, 2)),
        digest(|id| (id.pp, id.cp) = (rank(0, 2), rank(1, 2))),
        digest(|id| (id.pp, id.cp) = (rank(1, 2), rank(0, 2))),
        digest(|id| id.model = "org/model-b".to_owned()),
        digest(|id| id.pool = "indexer".to_owned()),
        digest(|id| id.revision = Some("org/model".to_owned())),
        digest(|id| id.layout = layout(DType::F16, PageOrder::PageFirst)),
        digest(|id| id.layout = layout(DType::Bf16, PageOrder::PageFirstDirect)),
        digest(|id| id.layout = layout(DType::Bf16, PageOrder::LayerFirst)),
    ];
    for (index, one) in digests.iter().enumerate() {
        assert!(!digests[..index].contains(one), "configuration {index} shares with an earlier one");
    }
}

#[test]
fn types_of_equal_size_never_share() {
    let of = |dtype| digest(|id| id.layout = layout(dtype, PageOrder::PageFirst));
    assert_ne!(of(DType::Bf16), of(DType::F16));
    assert_ne!(of(DType::F8E4m3), of(DType::F8E5m2));
    assert_ne!(of(DType::F8E4m3), of(DType::U8));
}

#[test]
fn replicated_ranks_share_and_their_stages_do_not() {
    let replicated = |tp, pp| digest(|id| (id.replicated, id.tp, id.pp) = (true, tp, pp));
    let first = replicated(rank(0, 8), Rank::ALONE);
    for tp in [rank(7, 8), rank(1, 2), Rank::ALONE] {
        assert_eq!(replicated(tp, Rank::ALONE), first, "every rank of {tp:?} holds the same bytes");
    }
    assert_ne!(replicated(rank(0, 8), rank(0, 2)), replicated(rank(0, 8), rank(1, 2)));
    assert_eq!(replicated(rank(3, 8), rank(1, 2)), replicated(rank(5, 8), rank(1, 2)));
}

#[test]
fn a_size_of_one_is_no_coordinate() {
    let alone = digest(|id| id.tp = Rank::ALONE);
    let ones = digest(|id| (id.tp, id.pp, id.cp, id.dcp) = (rank(0, 1), rank(0, 1), rank(0, 1), rank(0, 1)));
    assert_eq!(alone, ones);
}

#[test]
fn equal_weights_under_another_name_share() {
    let named = |model: &str, revision: &str| {
        of(|id| (id.model, id.revision) = (model.to_owned(), Some(revision.to_owned())))
    };
    let (a, b) = (named("org/model", "abc123"), named("mirror/copy", "abc123"));
    assert_eq!(a.digest(), b.digest());
    assert_ne!(a.name(), b.name());
    assert_ne!(a.digest(), named("org/model", "abc124").digest());
}

#[test]
fn head_ranges_stand_for_ranks_where_heads_come_first() {
    let heads = |heads, tp| {
        digest(|id| {
            id.layout = layout(DType::Bf16, PageOrder::PageHead);
            (id.heads, id.tp) = (heads, tp);
        })
    };
    let first = heads(Some((0, 2)), rank(0, 4));
    assert_eq!(heads(Some((0, 2)), rank(0, 2)), first, "the same heads, on a rank of another size");
    assert_ne!(heads(Some((2, 2)), rank(0, 4)), first);
    assert_ne!(heads(Some((0, 4)), rank(0, 4)), first);
    assert_ne!(heads(None, rank(0, 4)), first);
    let elsewhere = |heads| digest(|id| id.heads = heads);
    assert_eq!(elsewhere(Some((0, 2))), elsewhere(None), "in other orders a page is not cut by heads");
    assert_ne!(digest(|id| (id.heads, id.tp) = (Some((0, 2)), rank(1, 2))), elsewhere(None));
}

#[test]
fn equal_names_do_not_make_equal_digests() {
    let a = of(|id| id.revision = Some("1".to_owned()));
    let b = of(|id| id.revision = Some("2".to_owned()));
    assert_eq!(a.name(), b.name());
    assert_ne!(a.digest(), b.digest());
    let model = of(|_| ());
    let only_a_name = Namespace::named(model.name(), *model.layout()).unwrap();
    assert_eq!(only_a_name.name(), model.name());
    assert_ne!(only_a_name.digest(), model.digest());
}

#[test]
fn a_named_namespace_is_its_name() {
    let small = PageLayout::opaque(1).unwrap();
    let large = PageLayout::opaque(2).unwrap();
    let digest = |name, layout| Namespace::named(name, layout).unwrap().digest();
    assert_eq!(digest("a", small), digest("a", large), "so that a store can refuse the second");
    assert_ne!(digest("a", small), digest("A", small));
    assert_ne!(digest("a", small), digest("a ", small));
}

#[test]
fn names_that_are_no_names_are_refused() {
    let layout = PageLayout::opaque(1).unwrap();
    let long = "n".repeat(1_025);
    for name in ["", "a\nb", "a\0", "\u{7f}", "a\tb", "\u{85}", &long] {
        let error = Namespace::named(name, layout).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name:?}");
        assert!(!error.to_string().contains(char::is_control), "{error}");
        for edit in [|id: &mut Identity, name| id.model = name, |id: &mut Identity, name| id.pool = name] {
            let mut identity = identity();
            edit(&mut identity, name.to_owned());
            assert_eq!(Namespace::of(&identity).unwrap_err().kind(), ErrorKind::InvalidConfig, "{name:?}");
        }
    }
    assert!(Namespace::named(&"n".repeat(1_024), layout).is_ok());
}

#[test]
fn a_rank_is_below_its_size() {
    type Edit = fn(&mut Identity, Rank);
    let edits: [(&str, Edit); 4] = [
        ("tp", |id, rank| id.tp = rank),
        ("pp", |id, rank| id.pp = rank),
        ("cp", |id, rank| id.cp = rank),
        ("dcp", |id, rank| id.dcp = rank),
    ];
    for (name, edit) in edits {
        for bad in [rank(2, 2), rank(0, 0), rank(9, 1)] {
            let mut identity = identity();
            edit(&mut identity, bad);
            let error = Namespace::of(&identity).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(&format!("{name} rank {}", bad.rank)), "{error}");
        }
    }
}

#[test]
fn a_digest_is_its_text() {
    let digest = of(|_| ()).digest();
    assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
    assert_eq!(digest.to_string().len(), 64);
    assert_eq!("12".parse::<Digest>().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

proptest! {
    #[test]
    fn facts_do_not_run_into_one_another(
        texts in prop::collection::vec("[ab/=0-9]{1,3}", 4),
        revisions in prop::collection::vec(prop::option::of("[ab/=0-9]{0,3}"), 2),
    ) {
        let id = |index: usize| {
            let (model, pool) = (texts[2 * index].clone(), texts[2 * index + 1].clone());
            Identity { model, pool, revision: revisions[index].clone(), ..identity() }
        };
        let (a, b) = (id(0), id(1));
        let weights = |id: &Identity| match &id.revision {
            Some(revision) => (true, revision.clone()),
            None => (false, id.model.clone()),
        };
        let equal = weights(&a) == weights(&b) && a.pool == b.pool;
        let (a, b) = (Namespace::of(&a).unwrap(), Namespace::of(&b).unwrap());
        prop_assert_eq!(a.digest() == b.digest(), equal);
    }
}
