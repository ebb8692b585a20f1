//! Keys: the vectors of the formula, and what is no key.

use hicache_core::{ErrorKind, KeyUnits, PageKey, Result, namespace_seed};
use proptest::prelude::*;
use std::num::NonZeroUsize;

const TWO: NonZeroUsize = NonZeroUsize::new(2).unwrap();

fn page(parent: Option<&PageKey>, tokens: &[u64], units: KeyUnits) -> PageKey {
    PageKey::of_page(parent, tokens, units).unwrap()
}

fn chain(tokens: &[u64], page_len: NonZeroUsize, units: KeyUnits) -> Vec<PageKey> {
    PageKey::of_pages(None, tokens, page_len, units).unwrap()
}

#[test]
fn narrow_pages_and_their_chain_have_the_keys_of_the_formula() {
    let keys = chain(&[1, 2, 3, 4], TWO, KeyUnits::Token);
    let wanted = [
        "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f",
        "c57b445f90651b9a650e516ab2238c965b21af35608a31c303e6d9e407f2915c",
    ];
    assert_eq!(keys.iter().map(PageKey::to_string).collect::<Vec<_>>(), wanted);
}

#[test]
fn a_partial_page_has_a_key_of_its_own_and_none_in_a_chain() {
    let keys = chain(&[1, 2, 3, 4, 5], TWO, KeyUnits::Token);
    assert_eq!(keys, chain(&[1, 2, 3, 4], TWO, KeyUnits::Token));
    let third = page(keys.last(), &[5], KeyUnits::Token);
    assert_eq!(third.to_string(), "e1fd781b60f933e64fe17100c521f3130659b4761e25f7b79abcf81ae5aa23cf");
}

#[test]
fn one_token_above_32_bits_makes_its_page_wide() {
    let wide = page(None, &[1, 1 << 32], KeyUnits::Token);
    assert_eq!(wide.to_string(), "66af2f218931e670270f1b4ea79f49befb670188f60c94856ed7a1743298f181");
    // Wide is decided per page: the narrow page after a wide one is hashed as narrow.
    let keys = chain(&[1, 1 << 32, 3, 4], TWO, KeyUnits::Token);
    assert_eq!(keys, [wide, page(Some(&wide), &[3, 4], KeyUnits::Token)]);
    // The largest narrow token, and the same words written narrow, are other pages.
    assert_ne!(page(None, &[1, (1 << 32) - 1], KeyUnits::Token), wide);
    assert_ne!(page(None, &[1, 0, 0, 1], KeyUnits::Token), wide);
}

#[test]
fn bigrams_share_the_token_at_the_boundary() {
    let two = page(None, &[1, 2, 3], KeyUnits::Bigram);
    assert_eq!(two.to_string(), "ede8ef26a097f0fd889f9f39f6f5af921370630b164c4a4fa28eb716b2df9269");
    assert_eq!(two, page(None, &[1, 2, 2, 3], KeyUnits::Token));
    let keys = chain(&[1, 2, 3, 4, 5, 6], TWO, KeyUnits::Bigram);
    assert_eq!(keys, [two, page(Some(&two), &[3, 4, 5], KeyUnits::Bigram)]);
    for too_few in [&[][..], &[1], &[1, 2]] {
        assert_eq!(chain(too_few, TWO, KeyUnits::Bigram), []);
    }
    // The boundary token counts for the wide test of both its pages.
    let keys = chain(&[1, 2, 1 << 32, 4, 5], TWO, KeyUnits::Bigram);
    assert_eq!(keys[0], page(None, &[1, 2, 2, 1 << 32], KeyUnits::Token));
    assert_eq!(keys[1], page(Some(&keys[0]), &[1 << 32, 4, 4, 5], KeyUnits::Token));
}

#[test]
fn tenants_have_seeds_and_nobody_has_none() {
    let lora = namespace_seed(Some("lora-a"), None).unwrap();
    assert_eq!(lora.to_string(), "407c773a7c02b33bd4a62af6bf5fc77997c2c8067811ecf2b39e3839c3f4284b");
    let first = page(Some(&lora), &[1, 2], KeyUnits::Token);
    assert_eq!(first.to_string(), "ad023babe5121ed61b30e57d93dc9d29cb19b361c098794f361e7a94bf561d88");
    assert_eq!(PageKey::of_pages(Some(lora), &[1, 2], TWO, KeyUnits::Token).unwrap(), [first]);
    let salt = namespace_seed(None, Some("salt")).unwrap();
    assert_eq!(salt.to_string(), "43601f36bb365a5bdb202f3b4398e5edcdc529750311c8aa2028ce19293f8d6e");
    assert_eq!(namespace_seed(None, None), None);
}

#[test]
fn parts_of_a_seed_do_not_run_into_one_another() {
    let pairs = [
        (Some("ab"), Some("c")),
        (Some("a"), Some("bc")),
        (Some("abc"), None),
        (None, Some("abc")),
        (Some(""), None),
        (None, Some("")),
        (Some(""), Some("")),
        (Some("abc"), Some("")),
    ];
    let seeds: Vec<PageKey> = pairs.iter().map(|(key, salt)| namespace_seed(*key, *salt).unwrap()).collect();
    for (index, seed) in seeds.iter().enumerate() {
        assert!(!seeds[..index].contains(seed), "{:?}", pairs[index]);
    }
}

#[test]
fn a_negative_token_is_an_error_that_says_so() {
    let largest = i64::MAX as u64;
    assert!(PageKey::of_page(None, &[largest], KeyUnits::Token).is_ok());
    for (token, said) in [(largest + 1, i64::MIN), (u64::MAX, -1)] {
        for units in [KeyUnits::Token, KeyUnits::Bigram] {
            let error = PageKey::of_page(None, &[1, token], units).unwrap_err();
            assert_eq!(
                (error.kind(), error.fact("token")),
                (ErrorKind::InvalidArgument, Some(&*said.to_string()))
            );
            assert!(PageKey::of_pages(None, &[1, 2, 3, token, 5], TWO, units).is_err());
        }
    }
}

#[test]
fn what_is_not_64_hexadecimal_digits_is_no_key() {
    let good = "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f";
    let key: PageKey = good.parse().unwrap();
    assert_eq!((key.to_string().as_str(), key), (good, good.to_uppercase().parse().unwrap()));
    assert_eq!(format!("{key:?}"), format!("PageKey({good})"));
    let bad = [
        String::new(),
        good[1..].to_owned(),
        format!("{good}0"),
        format!(" {}", &good[1..]),
        format!("+{}", &good[1..]),
        format!("g{}", &good[1..]),
        format!("0x{}", &good[2..]),
        format!("é{}", &good[2..]),
        format!("{}\n", &good[1..]),
    ];
    for text in bad {
        let parsed: Result<PageKey> = text.parse();
        let error = parsed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text:?}");
        assert_eq!(error.fact("characters"), Some(&*text.chars().count().to_string()));
        assert!(!error.to_string().contains('\n'));
    }
}

proptest! {
    #[test]
    fn a_key_is_its_text(digest in any::<[u8; 32]>()) {
        let key = PageKey::new(digest);
        prop_assert_eq!(key.to_string().parse::<PageKey>().unwrap(), key);
        prop_assert_eq!(key.as_bytes(), &digest);
    }

    #[test]
    fn a_chain_is_its_pages_one_by_one(
        tokens in proptest::collection::vec(prop_oneof![0..50_000_u64, any::<u32>().prop_map(u64::from),
            0..i64::MAX as u64], 0..40),
        page_len in 1..9_usize,
        bigram in any::<bool>(),
    ) {
        let units = if bigram { KeyUnits::Bigram } else { KeyUnits::Token };
        let keys = chain(&tokens, NonZeroUsize::new(page_len).unwrap(), units);
        let overlap = usize::from(bigram);
        prop_assert_eq!(keys.len(), tokens.len().saturating_sub(overlap) / page_len);
        let mut parent = None;
        for (index, key) in keys.iter().enumerate() {
            let tokens = &tokens[index * page_len..(index + 1) * page_len + overlap];
            prop_assert_eq!(*key, page(parent.as_ref(), tokens, units));
            parent = Some(*key);
        }
        // A longer chain begins with the keys of a shorter one.
        let shorter = chain(&tokens[..tokens.len() / 2], NonZeroUsize::new(page_len).unwrap(), units);
        prop_assert!(keys.starts_with(&shorter));
    }
}
