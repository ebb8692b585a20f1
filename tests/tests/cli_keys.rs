//! Single pages and a store as a whole, by hand.

use hicache_tests::{Home, Ran, key, skip};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The page files of a store: those named by a key.
fn page_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(page_files(&path));
        } else if path.file_name().is_some_and(|name| name.len() == 64) {
            files.push(path);
        }
    }
    files
}

#[test]
fn what_was_put_is_got_and_put_again_is_present() {
    let home = Home::new();
    let bytes: Vec<u8> = (0..5000_u32).map(|at| at as u8).collect();
    let file = home.file("in", &bytes);
    assert_eq!(home.run(["put", &key(1), &file, "--json"]).ended(0).json(), json!({ "stored": "written" }));
    assert_eq!(home.run(["put", &key(1), &file, "--json"]).ended(0).json(), json!({ "stored": "present" }));
    // The default store is the user's own.
    assert!(home.path(".cache/hicache/hicache.store").exists());

    let out = home.path("out");
    let got = home.run(["get", &key(1), out.to_str().unwrap(), "--json"]).ended(0);
    assert_eq!(got.json(), json!({ "found": true, "bytes": 5000 }));
    assert_eq!(fs::read(&out).unwrap(), bytes);
    assert_eq!(home.run(["get", &key(1), "-"]).ended(0).stdout, bytes);
}

#[test]
fn a_page_goes_through_standard_input_and_output_and_a_link_is_followed() {
    let home = Home::new();
    let store = home.url("store");
    home.run_with(b"a page", ["put", "--backend", &store, "--parent", &key(9), &key(1), "-"]).ended(0);
    fs::write(home.path("real"), "before").unwrap();
    std::os::unix::fs::symlink("real", home.path("link")).unwrap();
    home.run(["get", "--backend", &store, &key(1), home.path("link").to_str().unwrap()]).ended(0);
    assert_eq!(fs::read(home.path("real")).unwrap(), b"a page");
    assert!(home.path("link").is_symlink());
    home.run(["get", "--backend", &store, &key(1), "/dev/null"]).ended(0);
    home.run(["get", "--backend", &store, &key(1), "-", "--json"]).ended(2);
}

#[test]
fn a_miss_makes_no_file_and_says_so() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("in", "x")]).ended(0);
    for namespace in ["default", "other"] {
        let out = home.path("out");
        let arguments = ["get", &key(2), out.to_str().unwrap(), "--namespace", namespace, "--json"];
        let missed = home.run(arguments).ended(1);
        assert_eq!(missed.json(), json!({ "found": false, "bytes": 0 }));
        assert!(missed.stderr.starts_with("not found: "), "{}", missed.stderr);
        assert!(missed.stderr.contains("no such page"), "{}", missed.stderr);
        assert!(!out.exists());
    }
}

#[test]
fn a_put_of_another_size_is_refused_with_both_sizes() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("a", [1; 5000])]).ended(0);
    let other = home.file("b", [1; 5001]);
    let refused = home.run(["put", &key(2), &other]).ended(2);
    assert!(refused.stderr.contains("5001") && refused.stderr.contains("5000"), "{}", refused.stderr);
    home.run(["put", &key(2), &other, "--namespace", "large"]).ended(0);
    home.run(["put", &key(3), &home.file("empty", "")]).ended(2);
}

#[test]
fn exists_counts_the_leading_run_and_remove_what_was_there() {
    let home = Home::new();
    let file = home.file("in", "page");
    for byte in [1, 2, 4] {
        home.run(["put", &key(byte), &file]).ended(0);
    }
    let keys = [key(1), key(2), key(3), key(4)];
    let asked = |command: &'static str| {
        let arguments = [command, "--json"].into_iter().chain(keys.iter().map(String::as_str));
        home.run(arguments.collect::<Vec<_>>()).ended(0).json()
    };
    assert_eq!(asked("exists"), json!({ "exists": [true, true, false, true], "prefix": 2 }));
    assert_eq!(asked("remove"), json!({ "removed": 3 }));
    assert_eq!(asked("exists"), json!({ "exists": [false, false, false, false], "prefix": 0 }));
    let plain = home.run(["exists", &key(1), "--quiet"]).ended(0);
    assert_eq!(plain.text(), format!("{} no\n", key(1)));
}

#[test]
fn list_stat_namespaces_and_drop_tell_what_is_there() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("a", [1; 100])]).ended(0);
    home.run(["put", &key(2), &home.file("a", [1; 100])]).ended(0);
    home.run(["put", &key(3), &home.file("b", [1; 7]), "--namespace", "other"]).ended(0);

    let listed = home.run(["list", "--json"]).ended(0).json();
    let keys = listed["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 3);
    let last = keys.iter().find(|row| row["key"] == json!(key(3))).unwrap();
    assert_eq!((&last["namespace"], &last["bytes"]), (&json!("other"), &json!(7)));
    assert!(last["age_seconds"].as_f64().unwrap() < 600.0);
    assert_eq!(last.as_object().unwrap().len(), 4);
    let one = home.run(["list", "--namespace", "other"]).ended(0).text();
    assert!(one.lines().nth(1).unwrap().starts_with(&format!("{} 7 other ", key(3))), "{one}");
    assert_eq!(one.lines().count(), 2, "{one}");

    let stat = home.run(["stat", "--json"]).ended(0);
    assert_eq!(stat.json_keys(), ["bytes", "capacity_bytes", "files", "format", "namespaces", "pages"]);
    let stat = stat.json();
    assert_eq!((&stat["pages"], &stat["bytes"], &stat["namespaces"]), (&json!(3), &json!(207), &json!(2)));
    assert_eq!(stat["format"], json!("files"));
    assert!(stat["capacity_bytes"].as_u64().unwrap() > 207);
    let one = home.run(["stat", "--json", "--namespace", "other"]).ended(0).json();
    assert_eq!((&one["pages"], &one["bytes"], &one["namespaces"]), (&json!(1), &json!(7), &json!(1)));

    let namespaces = home.run(["namespaces", "--json"]).ended(0).json();
    let rows = namespaces["namespaces"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["name"], &rows[0]["pages"], &rows[0]["bytes"]),
        (&json!("default"), &json!(2), &json!(200))
    );
    assert_eq!(rows[1]["digest"].as_str().unwrap().len(), 64);
    assert_eq!(rows[1].as_object().unwrap().len(), 4);

    let unknown = home.run(["drop", "othr"]).ended(2);
    assert!(unknown.stderr.contains("\"other\""), "{}", unknown.stderr);
    assert_eq!(home.run(["drop", "default", "--json"]).ended(0).json(), json!({ "removed": 2 }));
    assert_eq!(home.run(["stat", "--json"]).ended(0).json()["pages"], json!(1));
}

#[test]
fn an_empty_store_has_an_empty_list() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("a", "x")]).ended(0);
    home.run(["remove", &key(1)]).ended(0);
    assert_eq!(home.run(["list", "--json"]).ended(0).json(), json!({ "keys": [] }));
    assert_eq!(home.run(["list", "--quiet"]).ended(0).text(), "");
}

#[test]
fn what_is_told_of_a_store_names_it() {
    let home = Home::new();
    let url = home.url("store");
    let run =
        |arguments: &[&str]| home.run(arguments.iter().copied().chain(["--backend", &url])).ended(0).text();
    let page = home.file("a", "x");
    for byte in [1, 2] {
        assert_eq!(run(&["put", &key(byte), &page, "--quiet"]), "written\n");
    }
    let out = home.path("out");
    let get = ["get", &key(1), out.to_str().unwrap()];
    assert_eq!(run(&[&get[..], &["--quiet"]].concat()), "1 byte\n");
    for (arguments, line) in [
        (&["put", &key(1), &page][..], format!("present in namespace \"default\" of {url}")),
        (&["put", &key(3), &page], format!("written to namespace \"default\" of {url}")),
        (&get, format!("1 byte from namespace \"default\" of {url}")),
        (&["exists", &key(1)], format!("store {url} (key, whether it is in namespace \"default\")")),
        (&["list"], format!("store {url} (key, bytes, namespace, age)")),
        (&["namespaces"], format!("store {url} (namespace, pages, bytes, page layout)")),
        (&["stat"], format!("store       {url}")),
        (&["verify"], format!("store {url}")),
        (&["remove", &key(1)], format!("1 of 1 removed from namespace \"default\" of {url}")),
        (&["drop", "default"], format!("2 pages removed, with namespace \"default\" of {url}")),
    ] {
        assert_eq!(run(arguments).lines().next(), Some(line.as_str()));
    }
    run(&["put", &key(1), &page]);
    let missed = home.run(["get", &key(2), "-", "--backend", &url]).ended(1).stderr;
    assert!(missed.contains(&format!("namespace \"default\" of {url} has no such page")), "{missed}");
    assert!(run(&["drop", "default"]).starts_with("1 page removed"));
}

#[test]
fn a_flipped_bit_in_the_first_a_middle_and_the_last_byte_is_found_and_is_a_miss() {
    let home = Home::new();
    for (name, place) in [("first", 0.0), ("middle", 0.5), ("last", 1.0)] {
        let store = home.url(name);
        let in_file = home.file("in", vec![7; 20_000]);
        home.run(["put", "--backend", &store, &key(1), &in_file]).ended(0);
        home.run(["put", "--backend", &store, &key(2), &in_file]).ended(0);
        let files = page_files(&home.path(name));
        let damaged = files.iter().find(|file| file.ends_with(key(1))).unwrap();
        let mut bytes = fs::read(damaged).unwrap();
        let at = (place * (bytes.len() - 1) as f64) as usize;
        bytes[at] ^= 1;
        fs::write(damaged, bytes).unwrap();

        let verified = home.run(["verify", "--backend", &store, "--json"]).ended(3);
        let keys = ["ok", "orphans", "pages", "repaired", "torn", "unreadable", "unverified", "wrong"];
        assert_eq!(verified.json_keys(), keys);
        let counts = verified.json();
        assert_eq!((&counts["pages"], &counts["ok"], &counts["wrong"]), (&json!(2), &json!(1), &json!(1)));
        assert!(verified.stderr.contains(&key(1)), "{}", verified.stderr);
        let missed = home.run(["get", "--backend", &store, &key(1), "-"]).ended(1);
        assert!(
            missed.stderr.contains("\ndamaged: ") && missed.stderr.contains("set aside"),
            "{}",
            missed.stderr
        );
        // It was: now it is not there.
        let missed = home.run(["get", "--backend", &store, &key(1), "-"]).ended(1);
        assert!(missed.stderr.starts_with("not found: "), "{}", missed.stderr);
        home.run(["get", "--backend", &store, &key(2), "-"]).ended(0);
    }
}

#[test]
fn a_torn_page_is_found_repaired_and_then_gone() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("in", vec![7; 20_000])]).ended(0);
    let file = page_files(&home.path(".cache/hicache")).remove(0);
    fs::File::options().write(true).open(&file).unwrap().set_len(10_000).unwrap();
    assert_eq!(home.run(["verify", "--json"]).ended(3).json()["torn"], json!(1));
    // What was found wrong is told by the exit code, also when it is repaired.
    let repaired = home.run(["verify", "--repair", "--json"]).ended(3).json();
    assert_eq!((&repaired["torn"], &repaired["repaired"]), (&json!(1), &json!(1)));
    let clean = home.run(["verify", "--json"]).ended(0).json();
    assert_eq!((&clean["pages"], &clean["torn"]), (&json!(0), &json!(0)));
}

#[test]
fn a_page_without_a_check_is_told_from_one_that_is_not_there() {
    let home = Home::new();
    let store = home.url("store");
    let unchecked = format!("{store}?checksum=false");
    home.run(["put", "--backend", &unchecked, &key(1), &home.file("in", "a page")]).ended(0);
    let missed = home.run(["get", "--backend", &store, &key(1), "-"]).ended(1);
    assert!(missed.stderr.starts_with("unverified: "), "{}", missed.stderr);
    assert!(missed.stderr.contains("accept_unverified=true"), "{}", missed.stderr);
    let accepting = format!("{store}?accept_unverified=true");
    assert_eq!(home.run(["get", "--backend", &accepting, &key(1), "-"]).ended(0).stdout, b"a page");
}

#[test]
fn other_bytes_under_a_key_that_is_there_are_not_written() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("a", "first")]).ended(0);
    assert_eq!(home.run(["put", &key(1), &home.file("b", "other"), "--quiet"]).ended(0).text(), "present\n");
    assert_eq!(home.run(["get", &key(1), "-"]).ended(0).stdout, b"first");
}

#[test]
fn a_page_put_into_memory_is_told_to_be_forgotten() {
    let home = Home::new();
    let arguments = ["put", "--backend", "memory:", &key(1), &home.file("in", "x")];
    assert!(home.run(arguments).ended(0).stderr.contains("memory: forgets"));
    assert_eq!(home.run(arguments.iter().chain(&["--quiet"])).ended(0).stderr, "");
}

#[test]
fn the_room_of_a_store_is_not_called_a_capacity() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("a", "x")]).ended(0);
    let told = home.run(["stat"]).ended(0).text();
    let room = told.lines().find(|line| line.starts_with("room ")).expect("a line says the room");
    assert!(room.ends_with("(bytes + free space)"), "{room}");
    assert!(!told.contains("capacity"), "{told}");
}

#[test]
fn a_file_that_is_there_keeps_its_mode_and_a_new_one_has_that_of_the_umask() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("in", "a page")]).ended(0);
    let mode = |name: &str| fs::metadata(home.path(name)).unwrap().mode() & 0o777;
    for before in [0o600, 0o666, 0o750, 0o400] {
        home.file("out", "before");
        fs::set_permissions(home.path("out"), Permissions::from_mode(before)).unwrap();
        let ran = home.shell(&format!("umask 027 && \"$H\" get {} \"$HOME/out\"", key(1)));
        ran.ended(0);
        assert_eq!((fs::read(home.path("out")).unwrap(), mode("out")), (b"a page".to_vec(), before));
        fs::remove_file(home.path("out")).unwrap();
    }
    home.shell(&format!("umask 027 && \"$H\" get {} \"$HOME/new\"", key(1))).ended(0);
    assert_eq!(mode("new"), 0o640);
}

#[test]
fn a_link_to_a_file_that_is_not_there_yet_stays_and_the_file_is_made() {
    let home = Home::new();
    home.run(["put", &key(1), &home.file("in", "a page")]).ended(0);
    fs::create_dir(home.path("folder")).unwrap();
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, home.path(from)).unwrap();
    link("folder/second", "first");
    link("../third", "folder/second");
    home.run(["get", &key(1), home.path("first").to_str().unwrap()]).ended(0);
    assert!(home.path("first").is_symlink() && home.path("folder/second").is_symlink());
    assert_eq!(fs::read(home.path("third")).unwrap(), b"a page");
    assert!(!home.path("third").is_symlink());
    link("round", "round");
    home.run(["get", &key(1), home.path("round").to_str().unwrap()]).ended(1);
    link("no-such/file", "nowhere");
    home.run(["get", &key(1), home.path("nowhere").to_str().unwrap()]).ended(1);
    assert!(home.path("round").is_symlink() && home.path("nowhere").is_symlink());
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_that_leaves_none() {
    let home = Home::new();
    let store = home.url("store");
    home.run(["put", "--backend", &store, &key(1), &home.file("in", vec![7; 20_000])]).ended(0);
    fs::create_dir(home.path("folder")).unwrap();
    let out = home.path("folder/out").display().to_string();
    let arguments = ["get", "--backend", &store, &key(1), &out, "--json"];
    let mut command = home.command_under(&["prlimit", "--fsize=4095"], arguments);
    let ran = Ran::from(command.output().unwrap()).ended(1);
    assert_eq!(ran.json()["error"]["kind"], "io");
    assert!(ran.stderr.contains("File too large"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(home.path("folder")).unwrap().count(), 0);
    let arguments = ["put", "--backend", &store, &key(2), &home.path("in").display().to_string(), "--json"];
    let mut command = home.command_under(&["prlimit", "--fsize=4095"], arguments);
    assert_eq!(Ran::from(command.output().unwrap()).ended(1).json_keys(), ["error"]);
}

/// The command, where nobody may run it, in a home that nobody may enter.
struct Nobody(PathBuf);

impl Nobody {
    fn new(home: &Home) -> Self {
        fs::set_permissions(home.path(""), Permissions::from_mode(0o755)).unwrap();
        let copy = home.path("hicache-copy");
        if !copy.exists() {
            fs::copy(home.command(["list"]).get_program(), &copy).unwrap();
        }
        Self(copy)
    }

    fn run(&self, arguments: &[&str], store: &str) -> Ran {
        let mut command = Command::new(&self.0);
        command.args(arguments).args(["--backend", store, "--json"]).uid(65534).gid(65534);
        Ran::from(command.output().unwrap())
    }
}

#[test]
fn a_page_that_may_not_be_read_is_counted_and_neither_sound_nor_absent() {
    let home = Home::new();
    if !fs::metadata(home.path("")).is_ok_and(|there| there.uid() == 0) {
        let test = "a_page_that_may_not_be_read_is_counted_and_neither_sound_nor_absent";
        return skip(test, "needs root to be another user");
    }
    let store = home.url("store");
    for byte in [1, 2, 3] {
        home.run(["put", "--backend", &store, &key(byte), &home.file("in", "a page")]).ended(0);
    }
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let pages = page_files(&home.path("store"));
    let page = |byte| pages.iter().find(|path| path.ends_with(key(byte))).unwrap();
    set(page(1), 0);
    let nobody = Nobody::new(&home);
    let counts = |ran: &Ran, names: &[&str]| -> Vec<u64> {
        let document = ran.json();
        names.iter().map(|name| document[*name].as_u64().unwrap_or(0)).collect()
    };
    let names = ["pages", "ok", "wrong", "torn", "unverified", "unreadable", "orphans"];
    let verified = nobody.run(&["verify"], &store).ended(1);
    assert_eq!(counts(&verified, &names), [3, 2, 0, 0, 0, 1, 0]);
    assert!(
        verified.stderr.contains("unreadable: ") && verified.stderr.contains(&key(1)),
        "{}",
        verified.stderr
    );
    // What a folder holds that cannot be listed nobody knows: that is told by each who lists.
    set(page(2).parent().unwrap(), 0);
    let verified = nobody.run(&["verify"], &store).ended(1);
    assert_eq!(counts(&verified, &names), [2, 1, 0, 0, 0, 2, 0]);
    for command in ["list", "stat", "namespaces"] {
        let told = nobody.run(&[command], &store).ended(1);
        assert!(told.stderr.contains("unreadable: "), "{command}: {}", told.stderr);
        assert!(command == "namespaces" || counts(&told, &["unreadable"]) == [1], "{}", told.text());
    }
    set(page(1), 0o644);
    set(page(2).parent().unwrap(), 0o755);
    assert_eq!(counts(&nobody.run(&["verify"], &store).ended(0), &names), [3, 3, 0, 0, 0, 0, 0]);
}

#[test]
fn a_page_that_may_not_be_looked_for_is_an_error_and_no_miss() {
    let home = Home::new();
    if !fs::metadata(home.path("")).is_ok_and(|there| there.uid() == 0) {
        let test = "a_page_that_may_not_be_looked_for_is_an_error_and_no_miss";
        return skip(test, "needs root to be another user");
    }
    let store = home.url("store");
    for byte in [1, 2] {
        home.run(["put", "--backend", &store, &key(byte), &home.file("in", "a page")]).ended(0);
    }
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let as_nobody = |arguments: &[&str]| Nobody::new(&home).run(arguments, &store);
    assert_eq!(as_nobody(&["exists", &key(1)]).ended(0).json()["prefix"], json!(1));
    let page = page_files(&home.path("store")).into_iter().find(|path| path.ends_with(key(1))).unwrap();
    let bucket = page.parent().unwrap();
    let namespaces = bucket.ancestors().nth(2).unwrap();
    for folder in [bucket, namespaces, &home.path("store")] {
        set(folder, 0);
        for arguments in
            [&["exists", &key(1)][..], &["exists", &key(2), &key(1)], &["get", &key(1), "/dev/null"]]
        {
            let ran = as_nobody(arguments).ended(1);
            assert_eq!(ran.json()["error"]["kind"], "permission_denied", "{}", ran.stderr);
            assert!(ran.stderr.contains("error: ") && !ran.stderr.contains("not found"), "{}", ran.stderr);
        }
        set(folder, 0o755);
    }
}

#[test]
fn of_namespaces_of_one_name_each_is_reached_by_its_digest() {
    use hicache::{
        HostPool, Identity, Namespace, PageLayout, PageOrder, Put, Rank, RegionSpec, StorageBackendExt,
    };
    let home = Home::new();
    let url = home.url("store");
    let store = hicache::open(&url).unwrap();
    let geometry =
        hicache::Geometry::Mla { layers: 2, tokens: 4, latent_dim: 8, dtype: hicache::DType::Bf16 };
    let namespaces = [PageOrder::PageFirst, PageOrder::LayerFirst].map(|order| {
        let (alone, layout) = (Rank::ALONE, PageLayout::new(geometry, order).unwrap());
        let identity = Identity {
            model: "some/model".to_owned(),
            revision: None,
            pool: "kv".to_owned(),
            layout,
            tp: alone,
            pp: alone,
            cp: alone,
            dcp: alone,
            replicated: true,
            heads: None,
        };
        let namespace = Namespace::of(&identity).unwrap();
        let backend = store.backend(namespace.clone()).unwrap();
        let strides = layout.strides(1, backend.capabilities().alignment).unwrap();
        let region = RegionSpec { len: strides.region_len(), ..Default::default() }.map().unwrap();
        let page = HostPool::new(region, strides, &[]).unwrap().alloc(1).unwrap().remove(0).freeze();
        let key = hicache::PageKey::new([1; 32]);
        backend.set(Put { key, parent: None, page }).wait().unwrap();
        namespace
    });
    drop(store);
    let name = namespaces[0].name().to_owned();
    assert_eq!(name, namespaces[1].name());
    let [first, second] = namespaces.map(|namespace| namespace.digest().to_string());
    let refused = home.run(["drop", &name, "--backend", &url]).ended(2);
    for part in ["2 namespaces", &first, &second] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    let list = |namespace: &str| {
        let listed = home.run(["list", "--namespace", namespace, "--backend", &url, "--json"]);
        listed.ended(0).json()["keys"].as_array().unwrap().len()
    };
    assert_eq!((list(&first), list(&second)), (1, 1));
    let dropped = home.run(["drop", &first, "--backend", &url, "--json"]).ended(0);
    assert_eq!(dropped.json()["removed"], 1);
    // The name is one namespace's again.
    assert_eq!((list(&name), list(&second)), (1, 1));
    home.run(["drop", &first, "--backend", &url]).ended(2);
    home.run(["drop", &name, "--backend", &url]).ended(0);
}

#[test]
fn a_namespace_that_has_lost_its_record_is_looked_at_and_dropped_by_its_digest() {
    let home = Home::new();
    let file = home.file("page", vec![7; 5000]);
    let store = home.url("store");
    let run = |arguments: &[&str]| home.run(arguments.iter().copied().chain(["--json", "--backend", &store]));
    run(&["put", &key(1), &file]).ended(0);
    run(&["put", &key(2), &file]).ended(0);
    run(&["put", &key(3), &file, "--namespace", "kept"]).ended(0);
    let named = run(&["namespaces"]).ended(0).json();
    let named = named["namespaces"].as_array().unwrap().iter().find(|one| one["name"] == "default").unwrap();
    let digest = named["digest"].as_str().unwrap().to_owned();
    fs::remove_file(home.path("store").join("ns").join(&digest).join("namespace")).unwrap();
    let orphans = run(&["verify", "--namespace", &digest]).ended(0).json();
    assert!(orphans["orphans"].as_u64().unwrap() > 0, "{orphans}");
    let unknown = "0123456789abcdef".repeat(4);
    let ran = run(&["drop", &unknown]).ended(2);
    assert!(ran.stderr.contains("no namespace"), "{}", ran.stderr);
    assert_eq!(run(&["drop", &digest]).ended(0).json()["removed"], 2);
    let after = run(&["verify"]).ended(0).json();
    assert_eq!((&after["pages"], &after["orphans"]), (&1.into(), &0.into()), "{after}");
    run(&["drop", &digest]).ended(2);
}
