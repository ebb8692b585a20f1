//! The demo, the doctor and the completions; and a demo that is stopped half way.

use hicache_tests::{DIRECTORY_ROWS, Home, skip};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_demo_needs_nothing_and_leaves_nothing() {
    let home = Home::new();
    let report = home.run(["demo", "--json"]).ended(0).json();
    assert_eq!(report.as_object().unwrap().len(), 25);
    assert_eq!(
        (&report["wrong_pages"], &report["damaged_pages"], &report["errors"]),
        (&json!(0), &json!(0), &json!(0))
    );
    assert!(report["hit_ratio"].as_f64().unwrap() > 0.5);
    // Its pages are more than what a ring is given, whatever the machine has.
    assert_eq!(report["engine"], json!("threads"));
    assert!(home.leftovers().is_empty());
    let rows = report["fallbacks"].as_array().unwrap();
    let why = |row: &serde_json::Value| row["why"].as_str().unwrap().to_owned();
    let huge: Vec<_> = rows.iter().filter(|row| row["what"] == json!("huge_pages")).map(why).collect();
    if let [of_pool, of_slots] = &huge[..] {
        // Each says how many to reserve: whoever does one after the other must not lose the first.
        assert!(of_pool.starts_with("the host pool: ") && of_pool.contains("in addition"), "{of_pool}");
        assert!(
            of_slots.starts_with("the store's slots: ") && of_slots.contains("in addition"),
            "{of_slots}"
        );
    }
}

#[test]
fn the_demo_tells_people_what_they_got_and_what_to_do_next() {
    let home = Home::new();
    let ran = home.run(["demo", "--backend", "memory:"]).ended(0);
    assert!(ran.stderr.contains("memory: forgets"), "{}", ran.stderr);
    let told = ran.text();
    for word in ["hits", "GB/s", "p50", "p99", "memory", "hicache doctor", "hicache replay"] {
        assert!(told.contains(word), "{word} is not in {told}");
    }
}

#[test]
fn ctrl_c_ends_with_130_and_removes_the_temporary_store() {
    let home = Home::new();
    let mut child = endless_replay(&home, 1);
    // It listens before it makes the store.
    signal(&child, "-INT");
    let status = ended(&mut child);
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    assert!(told.contains("removing the temporary store") && told.contains("--backend"), "{told}");
    assert!(home.leftovers().is_empty());
}

#[test]
fn a_lost_terminal_and_a_kill_end_as_ctrl_c_does_each_with_its_number() {
    let home = Home::new();
    for (name, code) in [("-HUP", 129), ("-TERM", 143)] {
        let mut child = endless_replay_under(&home, 1, &["env", "--default-signal=HUP"]);
        signal(&child, name);
        assert_eq!(ended(&mut child).code(), Some(code), "{name}");
        assert!(home.leftovers().is_empty(), "{name}");
    }
    let help = home.run(["--help"]).ended(0).text();
    assert!(help.contains("129, 130, 143"), "{help}");
}

/// Two signals that it meets at once, so that nothing is removed between them; what it then says.
fn interrupted_twice(child: &mut Child) -> String {
    for name in ["-STOP", "-INT", "-TERM", "-CONT"] {
        signal(child, name);
    }
    let status = ended(child);
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    // Either may be the first that it is given.
    assert!(matches!(status.code(), Some(130 | 143)), "{status}: {told}");
    told
}

#[test]
fn a_second_signal_ends_at_once_and_tells_of_the_temporary_store_that_is_left() {
    let home = Home::new();
    let told = interrupted_twice(&mut endless_replay(&home, 1));
    let [left] = &home.leftovers()[..] else { panic!("{:?}: {told}", home.leftovers()) };
    assert!(told.contains("interrupted again") && told.contains(left.to_str().unwrap()), "{told}");
    home.shell(told.split('`').nth(1).unwrap()).ended(0);
    assert!(home.leftovers().is_empty());
}

#[test]
fn a_second_signal_tells_of_the_namespace_of_a_measurement_that_is_left() {
    let home = Home::new();
    let url = home.url("store");
    let mut command = home.command([
        "bench",
        "file",
        "--seconds",
        "600",
        "--pages",
        "64",
        "--batch",
        "4",
        "--backend",
        &url,
    ]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let namespaces = home.path("store/ns");
    // Its record, and a folder of pages.
    while entries(&namespaces).all(|namespace| entries(&namespace.path()).count() < 2) {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing was written");
        std::thread::yield_now();
    }
    let told = interrupted_twice(&mut child);
    let advice = told.split('`').nth(1).unwrap_or_else(|| panic!("{told}"));
    assert!(advice.starts_with("hicache drop bench-"), "{told}");
    home.shell(&advice.replacen("hicache", "$H", 1)).ended(0);
}

#[test]
fn under_nohup_the_terminal_may_go() {
    let home = Home::new();
    let mut child = endless_replay_under(&home, 1, &["env", "--ignore-signal=HUP"]);
    signal(&child, "-HUP");
    // Had it counted, this were the second, which ends the process at once and leaves the store.
    signal(&child, "-TERM");
    assert_eq!(ended(&mut child).code(), Some(143));
    assert!(home.leftovers().is_empty());
}

/// A replay that never ends by itself, once there are `count` temporary stores.
fn endless_replay(home: &Home, count: usize) -> Child {
    endless_replay_under(home, count, &[])
}

/// The same, started by `starter`, which becomes it.
fn endless_replay_under(home: &Home, count: usize, starter: &[&str]) -> Child {
    let request = |timestamp: u64| format!("{{\"timestamp\": {timestamp}, \"hash_ids\": [1, 2, 3]}}\n");
    let trace = home.file("trace.jsonl", request(0) + &request(3_600_000));
    let mut command = home.command_under(starter, ["replay", "--trace", &trace, "--speed", "1"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while home.leftovers().len() < count {
        assert!(started.elapsed() < Duration::from_secs(60), "no store was made");
        std::thread::yield_now();
    }
    child
}

/// How it ended, which it must do soon.
fn ended(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::yield_now();
    }
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

#[test]
fn the_store_of_a_killed_run_is_swept_by_the_next_and_that_of_a_live_one_is_not() {
    let home = Home::new();
    let mut killed = endless_replay(&home, 1);
    let [dead] = &home.leftovers()[..] else { panic!("one store was made") };
    signal(&killed, "-KILL");
    killed.wait().unwrap();
    assert!(dead.exists());
    // Somebody's file of such a name is none of ours.
    let theirs = dead.with_file_name("hicache-temporary-note");
    std::fs::write(&theirs, "x").unwrap();

    let mut live = endless_replay(&home, 2);
    let started = Instant::now();
    while dead.exists() || home.leftovers().len() < 2 {
        assert!(started.elapsed() < Duration::from_secs(60), "it was not swept");
        std::thread::yield_now();
    }
    let short = home.file("short.jsonl", "{\"timestamp\": 0, \"hash_ids\": [1]}\n");
    home.run(["replay", "--trace", &short, "--json"]).ended(0);
    assert_eq!(home.leftovers().len(), 2);
    signal(&live, "-INT");
    assert_eq!(live.wait().unwrap().code(), Some(130));
    assert_eq!(home.leftovers(), [theirs]);
}

#[test]
fn the_doctor_looks_without_making_anything() {
    let home = Home::new();
    let machine = [
        "io_uring",
        "huge_pages_2mb",
        "huge_pages_1gb",
        "thp",
        "dev_shm",
        "numa",
        "cgroup_memory",
        "memlock",
        "nofile",
    ];
    let names = [&DIRECTORY_ROWS[..], &machine].concat();
    let store = home.url("no/such/store");
    let told = home.run(["doctor", "--json", "--backend", &store]).ended(0).json();
    let checks = told["checks"].as_array().unwrap();
    assert_eq!(checks.iter().map(|check| check["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    for check in checks {
        assert_eq!(check.as_object().unwrap().len(), 5, "{check}");
        let missing_fix = check["fix"].as_str().unwrap().is_empty();
        assert_eq!(check["ok"].as_bool().unwrap(), missing_fix, "{check}");
    }
    assert!(!home.path("no").exists());
    let told = home.run(["doctor", "--backend", &store]).ended(0).text();
    let nearest = format!("nearest existing directory {} (for ", home.path("").display());
    assert!(told.replace("/ (", " (").starts_with(&nearest.replace("/ (", " (")), "{told}");
    assert!(told.contains("o_direct"), "{told}");
    std::fs::create_dir(home.path("there")).unwrap();
    let told = home.run(["doctor", "--backend", &home.url("there")]).ended(0).text();
    assert!(told.starts_with("directory "), "{told}");
}

#[test]
fn the_doctor_says_of_a_directory_that_it_cannot_be_written_and_blames_nothing_else() {
    // Not even root makes files there.
    let home = Home::new();
    let told = home.run(["doctor", "--json", "--backend", "file:/proc/hicache"]).ended(0).json();
    let checks = told["checks"].as_array().unwrap();
    assert_eq!((&checks[1]["name"], &checks[1]["ok"]), (&json!("writable"), &json!(false)));
    assert!(checks[1]["found"].as_str().unwrap().contains("no file can be made there"), "{told}");
    for check in &checks[2..5] {
        assert_eq!((&check["found"], &check["ok"]), (&json!("not tried"), &json!(false)), "{check}");
        assert!(check["fix"].as_str().unwrap().contains("writable"), "{check}");
    }
}

#[test]
fn the_doctor_says_of_a_file_in_a_stores_place_that_it_is_no_directory() {
    let home = Home::new();
    let file = home.path("file");
    std::fs::write(&file, b"something").unwrap();
    let text = home.run(["doctor", "--backend", &home.url("file")]).ended(0).text();
    assert!(text.contains("MISS writable") && text.contains("Not a directory"), "{text}");
    assert_eq!(std::fs::read(&file).unwrap(), b"something");
}

/// The row of that name.
fn row<'a>(told: &'a Value, name: &str) -> &'a Value {
    let checks = told["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == json!(name)).unwrap_or_else(|| panic!("no {name} in {told}"))
}

#[test]
fn the_doctor_looks_at_each_directory_of_a_store() {
    let home = Home::new();
    let (first, second) = (home.path("first"), home.path("second"));
    let url = format!("{}?dir={}&dir=/proc/hicache", home.url("first"), second.display());
    let told = home.run(["doctor", "--json", "--backend", &url]).ended(0).json();
    for (name, ok) in [
        ("writable", true),
        ("store", true),
        ("dir1.writable", true),
        ("dir1.store", true),
        ("dir1.free_space", row(&told, "free_space")["ok"].as_bool().unwrap()),
        ("dir2.writable", false),
    ] {
        assert_eq!(row(&told, name)["ok"], json!(ok), "{name}: {told}");
    }
    assert!(!first.exists() && !second.exists(), "nothing is made");
    let text = home.run(["doctor", "--backend", &url]).ended(0).text();
    assert!(text.contains(&format!("(for {})", second.display())), "{text}");

    // Once the store is there, a directory that is not is a disk that is not mounted.
    let page = home.file("in", "x");
    home.run(["put", &hicache_tests::key(1), &page, "--backend", &home.url("first")]).ended(0);
    let told = home.run(["doctor", "--json", "--backend", &url]).ended(0).json();
    assert_eq!(row(&told, "store")["found"], json!("a store"));
    let absent = row(&told, "dir1.store");
    assert!(absent["ok"] == json!(false) && absent["fix"].as_str().unwrap().contains("mount it"), "{absent}");
    // One directory twice.
    let url = format!("{0}?dir={1}", home.url("first"), first.display());
    let told = home.run(["doctor", "--json", "--backend", &url]).ended(0).json();
    assert!(row(&told, "dir1.store")["fix"].as_str().unwrap().contains("once"), "{told}");
}

#[test]
fn the_doctor_says_of_a_damaged_marker_and_of_somebody_elses_directory_that_no_store_opens_there() {
    let home = Home::new();
    let page = home.file("in", "x");
    home.run(["put", &hicache_tests::key(1), &page, "--backend", &home.url("damaged")]).ended(0);
    std::fs::write(home.path("damaged/hicache.store"), "some bytes").unwrap();
    std::fs::create_dir(home.path("theirs")).unwrap();
    home.file("theirs/mine.txt", "x");
    for (name, found, fix) in [("damaged", "marker", "empty it"), ("theirs", "mine.txt", "new directory")] {
        let url = home.url(name);
        let told = home.run(["doctor", "--json", "--backend", &url]).ended(0).json();
        let row = row(&told, "store");
        assert_eq!(row["ok"], json!(false));
        assert!(row["found"].as_str().unwrap().contains(found), "{row}");
        assert!(row["fix"].as_str().unwrap().contains(fix), "{row}");
        // As the commands say it.
        let refused = home.run(["put", &hicache_tests::key(1), &page, "--backend", &url]).ended(1);
        assert!(refused.stderr.contains(row["found"].as_str().unwrap()), "{}", refused.stderr);
    }
    assert_eq!(std::fs::read_dir(home.path("theirs")).unwrap().count(), 1);
}

#[test]
fn the_doctor_goes_by_the_huge_pages_that_the_store_asks_for() {
    let home = Home::new();
    let of = |option: &str, variable: &str| {
        let url = format!("{}?{option}", home.url("store"));
        let mut doctor = home.command(["doctor", "--json", "--backend", &url]);
        if !variable.is_empty() {
            doctor.env("HICACHE_FILE_HUGE_PAGES", variable);
        }
        let told = hicache_tests::Ran::from(doctor.output().unwrap()).ended(0).json();
        ["huge_pages_2mb", "huge_pages_1gb"]
            .map(|name| row(&told, name)["wanted"].as_str().unwrap().starts_with("nothing: "))
    };
    assert_eq!(of("", ""), [false, true]);
    assert_eq!(of("huge_pages=require:1GiB", ""), [true, false]);
    assert_eq!(of("huge_pages=off", ""), [true, true]);
    assert_eq!(of("", "prefer:1GiB"), [true, false]);
    let text = home.run(["doctor", "--backend", &home.url("store")]).ended(0).text();
    assert!(text.lines().any(|line| line.starts_with("info huge_pages_1gb ")), "{text}");
    assert!(text.lines().filter(|line| line.contains("nr_hugepages")).count() <= 1, "{text}");
}

/// Real file systems with no block left: one that says so when a file is written, and one on a device.
#[test]
fn the_doctor_says_of_a_full_disk_that_it_is_full_and_blames_nothing_else() {
    let test = "the_doctor_says_of_a_full_disk_that_it_is_full_and_blames_nothing_else";
    let home = Home::new();
    if !std::fs::metadata(home.path("")).is_ok_and(|there| there.uid() == 0) {
        return skip(test, "needs root to mount");
    }
    let ext4 = "truncate -s 8M $HOME/image && mkfs.ext4 -q -b 4096 $HOME/image && \
                mount -o loop $HOME/image $HOME/full";
    for mount in ["mount -t tmpfs -o size=1m none $HOME/full", ext4] {
        let ran = home.shell(&format!(
            "mkdir -p $HOME/full && exec unshare --mount --propagation private bash -c '\
             {{ {mount}; }} || exit 99; dd if=/dev/zero of=$HOME/full/ballast bs=4096 2> $HOME/dd; \
             exec $H doctor --json --backend file:$HOME/full'"
        ));
        if ran.code == Some(99) {
            skip(test, &format!("needs `{mount}`: {}", ran.stderr));
            continue;
        }
        let told = ran.ended(0).json();
        let checks = told["checks"].as_array().unwrap();
        let row = |name: &str| checks.iter().find(|check| check["name"] == json!(name)).unwrap();
        let (found, fix) = (&row("writable")["found"], &row("writable")["fix"]);
        assert!(found.as_str().unwrap().starts_with("the disk is full: "), "{mount}: {told}");
        assert!(fix.as_str().unwrap().contains("free space"), "{mount}: {told}");
        for name in ["o_direct", "dio_mem_align", "dio_offset_align"] {
            assert_eq!((&row(name)["found"], &row(name)["ok"]), (&json!("not tried"), &json!(false)));
            assert!(row(name)["fix"].as_str().unwrap().contains("writable"), "{mount}: {told}");
        }
    }
}

#[test]
fn the_doctor_names_owner_and_mode_of_a_directory_of_another_user() {
    let test = "the_doctor_names_owner_and_mode_of_a_directory_of_another_user";
    let home = Home::new();
    if !std::fs::metadata(home.path("")).is_ok_and(|there| there.uid() == 0) {
        return skip(test, "needs root to be another user");
    }
    let open = |mode| std::fs::set_permissions(home.path(""), Permissions::from_mode(mode)).unwrap();
    open(0o755);
    // Where nobody may run it.
    let store = home.url("");
    let copy = home.path("hicache-copy");
    std::fs::copy(home.command(["doctor"]).get_program(), &copy).unwrap();
    let mut command = Command::new(copy);
    command.args(["doctor", "--backend", &store]).uid(65534).gid(65534);
    let Ok(output) = command.output() else {
        return skip(test, "needs a temporary folder that another user can run a program in");
    };
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("chown 65534 ") && told.contains("mode 755"), "{told}");
    open(0o700);
}

#[test]
fn completions_are_there_for_each_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(home.run(["completions", shell]).ended(0).text().contains("hicache"), "{shell}");
    }
}
