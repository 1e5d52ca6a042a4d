#include "commands/config.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "train/config.h"

namespace q2 {
namespace {

struct ConfigOptions {
    std::string config;
    std::vector<std::string> overrides;
    bool markdown = false;
};

int show_config(const ConfigOptions& o) {
    Config defaults;
    const std::string text =
        o.markdown ? config_markdown()
        : o.config.empty()
            ? help_text(fields(defaults))
            : config_to_json(load_config(o.config, o.overrides, TokenizerCheck::never)).dump(2) + "\n";
    std::fputs(text.c_str(), stdout);
    return int(Exit::ok);
}

}  // namespace

void add_config(CLI::App& app, std::function<int()>& run) {
    const auto options = std::make_shared<ConfigOptions>();
    CLI::App* command =
        app.add_subcommand("config", "List the settings, or check a config and print it resolved");
    CLI::Option* config =
        command->add_option("CONFIG", options->config, "Config file; without it every setting is listed");
    command->add_option("--set", options->overrides, "key=value, overriding the config; may be repeated")
        ->allow_extra_args(false)
        ->needs(config);
    command->add_flag("--markdown", options->markdown, "Print docs/CONFIG.md")->excludes(config);
    command->callback([options, &run] { run = [options] { return show_config(*options); }; });
}

}  // namespace q2
