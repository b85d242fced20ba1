// Writes dist/basis.vsix: a zip with the manifest that editors and marketplaces read. The same input gives the same bytes.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { crc32, deflateRawSync } from "node:zlib";

const manifest = JSON.parse(readFileSync("package.json", "utf8"));
const FILES = ["dist/extension.js", "dist/webview.js", "dist/webview.css", "media/basis.svg", "README.md"];
const DOS_DATE = (46 << 9) | (1 << 5) | 1; // 2026-01-01, so that the build can be repeated

const escaped = (text) => text.replace(/[<>&'"]/g, (character) => `&#${character.charCodeAt(0)};`);

const vsixManifest = `<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
<Metadata>
<Identity Language="en-US" Id="${manifest.name}" Version="${manifest.version}" Publisher="${manifest.publisher}"/>
<DisplayName>${escaped(manifest.displayName)}</DisplayName>
<Description xml:space="preserve">${escaped(manifest.description)}</Description>
<Tags>${manifest.keywords.join(",")}</Tags>
<Categories>${manifest.categories.join(",")}</Categories>
<Properties>
<Property Id="Microsoft.VisualStudio.Code.Engine" Value="${manifest.engines.vscode}"/>
<Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="${manifest.extensionKind.join(",")}"/>
<Property Id="Microsoft.VisualStudio.Code.ExecutesCode" Value="true"/>
</Properties>
<License>extension/LICENSE.txt</License>
</Metadata>
<Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
<Dependencies/>
<Assets>
<Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
<Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
<Asset Type="Microsoft.VisualStudio.Services.Content.License" Path="extension/LICENSE.txt" Addressable="true"/>
</Assets>
</PackageManifest>
`;
const contentTypes = `<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
${["json", "js", "css", "svg", "md", "txt", "vsixmanifest"]
  .map((ending) => `<Default Extension=".${ending}" ContentType="application/octet-stream"/>`)
  .join("\n")}
</Types>
`;

const { devDependencies: _dev, scripts: _scripts, private: _private, ...shipped } = manifest;
const license = ["../../LICENSE", "LICENSE"].find(existsSync);
const entries = [
  ["[Content_Types].xml", contentTypes],
  ["extension.vsixmanifest", vsixManifest],
  ["extension/package.json", JSON.stringify(shipped, null, 2)],
  ["extension/LICENSE.txt", readFileSync(license)],
  ...FILES.map((path) => [`extension/${path}`, readFileSync(path)]),
];

/** Local headers, contents, central directory: all that a zip needs. */
function zip(files) {
  const bodies = [];
  const directory = [];
  let offset = 0;
  for (const [name, content] of files) {
    const data = Buffer.from(content);
    const packed = deflateRawSync(data, { level: 9 });
    const path = Buffer.from(name);
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0); // version needed: 2.0
    fields.writeUInt16LE(0x0800, 2); // names are UTF-8
    fields.writeUInt16LE(8, 4); // deflate
    fields.writeUInt16LE(0, 6);
    fields.writeUInt16LE(DOS_DATE, 8);
    fields.writeUInt32LE(crc32(data), 10);
    fields.writeUInt32LE(packed.length, 14);
    fields.writeUInt32LE(data.length, 18);
    fields.writeUInt16LE(path.length, 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04", "latin1"), fields, path, packed]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\x00", "latin1"), fields, tail, path]));
    bodies.push(local);
    offset += local.length;
  }
  const central = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  end.writeUInt16LE(files.length, 8);
  end.writeUInt16LE(files.length, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...bodies, central, end]);
}

writeFileSync("dist/basis.vsix", zip(entries));
