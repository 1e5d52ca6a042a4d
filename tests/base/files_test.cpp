#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <utility>

#include "tests/support/temp_folder.h"

namespace q2 {
namespace {

using test::expect_error, test::read_bytes, test::TempFolder, test::write_bytes;
namespace fs = std::filesystem;

TEST(MappedFile, ShowsTheBytes) {
    const TempFolder folder;
    write_bytes(folder / "a", "hello");
    MappedFile file(folder / "a");
    EXPECT_EQ(file.text(), "hello");
    const MappedFile moved = std::move(file);
    EXPECT_EQ(moved.text(), "hello");
    EXPECT_EQ(file.size(), 0u);
}

TEST(MappedFile, RefusesWhatIsNoFile) {
    const TempFolder folder;
    expect_error(Exit::data, {folder / "none", "No such file"}, [&] { MappedFile(folder / "none"); });
    expect_error(Exit::data, {folder.path(), "not a regular file"}, [&] { MappedFile(folder.path()); });
    write_bytes(folder / "empty", "");
    EXPECT_EQ(MappedFile(folder / "empty").size(), 0u);
}

// Opening a pipe without a writer, or writing one without a reader, would wait for ever.
TEST(Files, APipeIsRefusedAtOnce) {
    const TempFolder folder;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    ASSERT_EQ(::mkfifo((folder / "a.tmp").c_str(), 0600), 0);
    const std::string message = folder / "pipe" + ": not a regular file (a pipe, a device or a socket); " +
                                "copy what it gives into a file";
    expect_error(Exit::data, {message}, [&] { MappedFile(folder / "pipe"); });
    expect_error(Exit::data, {message}, [&] { q2::read_file(folder / "pipe", 100); });
    expect_error(Exit::data, {folder / "a.tmp", "cannot be written"}, [&] { AtomicFile(folder / "a"); });
}

TEST(Files, ATextLargerThanItMayBeIsRefused) {
    const TempFolder folder;
    write_bytes(folder / "a", std::string(2 << 20, 'x'));
    EXPECT_EQ(q2::read_file(folder / "a", 2 << 20).size(), size_t(2) << 20);
    expect_error(Exit::data, {"larger than the 1 MiB"}, [&] { q2::read_file(folder / "a", 1 << 20); });
}

TEST(AtomicFile, IsThereOnlyAfterCommit) {
    const TempFolder folder;
    write_bytes(folder / "a", "old");
    {
        AtomicFile file(folder / "a");
        file.write("new");
        EXPECT_EQ(read_bytes(folder / "a"), "old");
    }
    EXPECT_EQ(read_bytes(folder / "a"), "old");
    EXPECT_FALSE(fs::exists(folder / "a.tmp"));

    const FileSummary written = write_file_atomic(folder / "a", "new");
    EXPECT_EQ(read_bytes(folder / "a"), "new");
    EXPECT_FALSE(fs::exists(folder / "a.tmp"));
    const FileSummary found = summarize_file(folder / "a");
    EXPECT_EQ(written.size, 3u);
    EXPECT_EQ(found.size, written.size);
    EXPECT_EQ(found.checksum, written.checksum);
}

TEST(AtomicFile, RemovesAPartWhenTheDiskIsFull) {
    const TempFolder folder;
    rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    expect_error(Exit::data, {folder / "big.tmp", "cannot be written"},
                 [&] { write_file_atomic(folder / "big", std::string(5000, 'x')); });
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(AtomicFile, NamesWhatCannotBeWritten) {
    const TempFolder folder;
    expect_error(Exit::data, {folder / "no/a.tmp", "cannot be written"},
                 [&] { AtomicFile(folder / "no/a"); });
    fs::create_directories(folder / "taken/inside");
    expect_error(Exit::data, {folder / "taken", "is not a regular file"},
                 [&] { write_file_atomic(folder / "taken", "x"); });
    EXPECT_FALSE(fs::exists(folder / "taken.tmp"));
    write_bytes(folder / "file", "");
    expect_error(Exit::data, {folder / "file/sub", "cannot be made"},
                 [&] { make_folder(folder / "file/sub"); });
}

TEST(ExpandGlob, SortsAndNamesWhatIsMissing) {
    const TempFolder folder;
    for (const char* name : {"b-10.bin", "b-2.bin", "a.bin", "c[1].bin"}) write_bytes(folder / name, "");
    EXPECT_EQ(expand_glob(folder / "b-*.bin"),
              (std::vector<std::string>{folder / "b-10.bin", folder / "b-2.bin"}));
    EXPECT_EQ(expand_glob(folder / "a.bin"), std::vector<std::string>{folder / "a.bin"});
    EXPECT_EQ(expand_glob(folder / "c[1].bin"), std::vector<std::string>{folder / "c[1].bin"});
    expect_error(Exit::data, {folder / "z*", "no file matches"}, [&] { expand_glob(folder / "z*"); });
    expect_error(Exit::data, {folder / "z.bin", "no such file"}, [&] { expand_glob(folder / "z.bin"); });
}

}  // namespace
}  // namespace q2
