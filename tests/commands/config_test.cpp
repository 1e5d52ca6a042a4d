// quartet2 config: the listing, a resolved config, the Markdown page.
#include "tests/support/program.h"
#include "tests/support/tiny_run.h"

namespace q2::test {
namespace {

std::string printed(const Overrides& arguments) {
    const Finished f = run_program(Overrides{"config"} + arguments);
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.err, "");
    return f.out;
}

TEST(ConfigCommand, ListsEverySetting) {
    const std::string list = printed({}), page = printed({"--markdown"});
    Config defaults;
    for (const Field& field : fields(defaults)) {
        EXPECT_NE(list.find(field.name + " "), std::string::npos) << field.name;
        EXPECT_NE(page.find("| `" + field.name + "` |"), std::string::npos) << field.name;
    }
    EXPECT_EQ(page, config_markdown());
}

TEST(ConfigCommand, ResolvesAConfig) {
    const TinyRun tiny;
    const std::string resolved = printed({tiny.config_path(), "--set", "model.layers=3"});
    EXPECT_EQ(nlohmann::ordered_json::parse(resolved), config_to_json(tiny.config({"model.layers=3"})));
    write_bytes(tiny / "again.json", resolved);
    EXPECT_EQ(printed({tiny / "again.json"}), resolved);
}

TEST(ConfigCommand, RefusesWhatItWouldIgnore) {
    const TinyRun tiny;
    expect_failure({"config", "--set", "model.layers=3"}, Exit::usage, {"--set", "CONFIG"});
    expect_failure({"config", tiny.config_path(), "--markdown"}, Exit::usage, {"--markdown", "CONFIG"});
    expect_failure({"config", tiny.config_path(), "--set", "model.layers=0"}, Exit::config,
                   {"model.layers = 0"});
    expect_failure({"config", tiny / "none"}, Exit::data, {tiny / "none"});
}

}  // namespace
}  // namespace q2::test
