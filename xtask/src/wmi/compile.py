# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compiles a class for WMI by the package pywbem.

Argument: a MOF file. Output: JSON, the class's name, GUID and properties: a list of [name, type, WmiDataId].
"""
import json
import sys

from pywbem import MOFCompiler, MOFWBEMConnection

# Windows has these in its repository.
QUALIFIERS = """
Qualifier Key : boolean = false, Scope(property, reference);
Qualifier Read : boolean = true, Scope(property);
Qualifier Description : string = null, Scope(any);
Qualifier Dynamic : boolean = false, Scope(class);
Qualifier Guid : string = null, Scope(class);
Qualifier Locale : string = null, Scope(class);
Qualifier Provider : string = null, Scope(any);
Qualifier WMI : boolean = false, Scope(class);
Qualifier WmiDataId : sint32 = null, Scope(property);
"""


def main():
    with open(sys.argv[1], encoding="ascii", newline="") as file:
        lines = file.read().split("\r\n")
    # Directives and a path of the namespace that only mofcomp.exe knows.
    text = "\n".join(line for line in lines if not line.startswith("#pragma "))
    connection = MOFWBEMConnection()
    compiler = MOFCompiler(connection, verbose=False, log_func=None)
    compiler.compile_string(QUALIFIERS, "root/wmi")
    compiler.compile_string(text, "root/wmi")
    (found,) = connection.classes["root/wmi"].values()
    properties = []
    for name, item in found.properties.items():
        number = item.qualifiers.get("WmiDataId")
        properties.append([name, item.type, number and int(number.value)])
    guid = found.qualifiers["Guid"].value
    print(json.dumps({"name": found.classname, "guid": guid, "properties": properties}))


main()
