//! Page keys: the vectors of SGLang HiCache's hash chain, and tokens that are none.

use hicache_tests::Home;
use serde_json::json;

const ONE: &str = "34fb5c825de7ca4aea6e712f19d439c1da0c92c37b423936c5f618545ca4fa1f";
const TWO: &str = "c57b445f90651b9a650e516ab2238c965b21af35608a31c303e6d9e407f2915c";
const PARTIAL: &str = "e1fd781b60f933e64fe17100c521f3130659b4761e25f7b79abcf81ae5aa23cf";
const WIDE: &str = "66af2f218931e670270f1b4ea79f49befb670188f60c94856ed7a1743298f181";
const BIGRAM: &str = "ede8ef26a097f0fd889f9f39f6f5af921370630b164c4a4fa28eb716b2df9269";
const SEED_LORA: &str = "407c773a7c02b33bd4a62af6bf5fc77997c2c8067811ecf2b39e3839c3f4284b";
const ONE_UNDER_LORA: &str = "ad023babe5121ed61b30e57d93dc9d29cb19b361c098794f361e7a94bf561d88";
const SEED_SALT: &str = "43601f36bb365a5bdb202f3b4398e5edcdc529750311c8aa2028ce19293f8d6e";

fn keys(input: &str, flags: &[&str]) -> Vec<String> {
    let home = Home::new();
    let arguments = ["page-keys"].iter().chain(flags);
    home.run_with(input.as_bytes(), arguments).ended(0).text().lines().map(str::to_owned).collect()
}

#[test]
fn the_chain_is_that_of_sglang_whatever_separates_the_tokens() {
    for input in ["1 2 3 4", "1,2,3,4\n", "[1, 2, 3, 4]", "1\n2\n3\n4\n"] {
        assert_eq!(keys(input, &["--page-size", "2"]), [ONE, TWO], "{input:?}");
    }
    assert_eq!(keys("3 4", &["--page-size", "2", "--prior", ONE]), [TWO]);
    assert_eq!(keys("5", &["--page-size", "1", "--prior", TWO]), [PARTIAL]);
    assert_eq!(keys("1 4294967296", &["--page-size", "2"]), [WIDE]);
    assert_eq!(keys("1 2 3", &["--page-size", "2", "--bigram"]), [BIGRAM]);
    assert_eq!(keys("", &["--page-size", "2"]), [""; 0]);
}

#[test]
fn tenants_are_seeded_apart_and_an_empty_prior_suppresses_the_seed() {
    let lora = ["--page-size", "2", "--extra-key", "lora-a"];
    assert_eq!(keys("1 2", &lora), [ONE_UNDER_LORA]);
    assert_eq!(keys("1 2", &["--page-size", "2", "--prior", SEED_LORA]), [ONE_UNDER_LORA]);
    let salted = keys("1 2", &["--page-size", "2", "--cache-salt", "salt"]);
    assert_eq!(salted, keys("1 2", &["--page-size", "2", "--prior", SEED_SALT]));
    assert_eq!(keys("1 2", &[&lora[..], &["--prior", ""]].concat()), [ONE]);
}

#[test]
fn a_trailing_partial_page_is_told_and_has_no_key() {
    let home = Home::new();
    let ran = home.run_with(b"1 2 3 4 5", ["page-keys", "--page-size", "2", "--json"]).ended(0);
    assert_eq!(ran.json(), json!({ "keys": [ONE, TWO] }));
    assert!(ran.stderr.contains("last 1"), "{}", ran.stderr);
    let whole = home.run_with(b"1 2 3", ["page-keys", "--page-size", "2", "--bigram"]).ended(0);
    assert_eq!(whole.stderr, "");
}

#[test]
fn a_token_that_is_none_ends_with_2_and_its_place() {
    let home = Home::new();
    for (input, place) in [
        ("1 2\n-3 4", "token 3 (line 2)"),
        ("9223372036854775808", "token 1 (line 1)"),
        ("1 two", "token 2"),
        ("[1, null]", "token 2"),
        ("[1, 2", "brackets"),
    ] {
        let ran = home.run_with(input.as_bytes(), ["page-keys", "--page-size", "1", "--json"]).ended(2);
        assert!(ran.stderr.contains(place), "{input:?}: {}", ran.stderr);
        assert_eq!(ran.json_keys(), ["error"]);
    }
    let ran = home.run_with(b"1 2\n3 \xff", ["page-keys", "--page-size", "1", "--json"]).ended(2);
    assert!(ran.stderr.contains("byte 7 (line 2)"), "{}", ran.stderr);
    assert_eq!(ran.json_keys(), ["error"]);
    home.run(["page-keys", "--page-size", "0"]).ended(2);
    home.run(["page-keys", "--page-size", "1", "--prior", "abc"]).ended(2);
}

#[test]
fn the_help_says_what_the_input_looks_like() {
    let help = Home::new().run(["page-keys", "--help"]).ended(0).text();
    assert!(help.contains("[1, 2, 3]") && help.contains("2^63 - 1"), "{help}");
}
