"use strict";
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("hloom").get("command");
  client = new LanguageClient("hloom", "hloom", { command, args: ["lsp"] }, { documentSelector: [{ language: "hlo" }] });
  return client.start();
};

exports.deactivate = () => client && client.stop();
