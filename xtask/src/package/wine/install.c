// SPDX-License-Identifier: MIT OR Apache-2.0

/* Installs a driver by Wine's setupapi: makes a root device with a hardware id, has it updated with the INF, and installs the section of the
 * event log, which Wine leaves out. Arguments: INF, hardware id, instance of the device. What happened is read from the registry by the caller;
 * messages are for a reader only. */

#include <windows.h>
#include <setupapi.h>
#include <newdev.h>
#include <stdio.h>

static void failed(const wchar_t *what)
{
    printf("%ls: error %#lx\n", what, GetLastError());
}

/* Copies a field of the first line of a section with this key. */
static BOOL field(HINF inf, const wchar_t *section, const wchar_t *key, DWORD number, wchar_t *text, DWORD length)
{
    INFCONTEXT line;
    return SetupFindFirstLineW(inf, section, key, &line) && SetupGetStringFieldW(&line, number, text, length, NULL);
}

static void install_device(const wchar_t *path, const wchar_t *id, const wchar_t *instance)
{
    GUID class;
    wchar_t name[64], ids[512] = { 0 };
    BOOL restart = FALSE;
    SP_DEVINFO_DATA device = { sizeof device };
    HDEVINFO set;

    if (!SetupDiGetINFClassW(path, &class, name, 64, NULL)) { failed(L"class of the INF"); return; }
    set = SetupDiCreateDeviceInfoList(&class, NULL);
    if (!SetupDiCreateDeviceInfoW(set, instance, &class, NULL, NULL, 0, &device)) failed(L"device");
    wcsncpy(ids, id, 500);
    if (!SetupDiSetDeviceRegistryPropertyW(set, &device, SPDRP_HARDWAREID, (BYTE *)ids, (wcslen(ids) + 2) * sizeof *ids))
        failed(L"hardware id");
    if (!SetupDiCallClassInstaller(DIF_REGISTERDEVICE, set, &device)) failed(L"registration of the device");
    if (!UpdateDriverForPlugAndPlayDevicesW(NULL, id, path, 0, &restart)) failed(L"update of the device");
    SetupDiDestroyDeviceInfoList(set);
}

/* The section that the fourth value of AddService names, as Wine's parser reads it. */
static void install_event_log(const wchar_t *path, const wchar_t *services)
{
    wchar_t service[64], section[64], key_name[160];
    HKEY key;
    HINF inf = SetupOpenInfFileW(path, NULL, INF_STYLE_WIN4, NULL);

    if (inf == INVALID_HANDLE_VALUE) { failed(L"INF"); return; }
    if (field(inf, services, L"AddService", 1, service, 64) && field(inf, services, L"AddService", 4, section, 64)) {
        _snwprintf(key_name, 160, L"System\\CurrentControlSet\\Services\\EventLog\\System\\%ls", service);
        if (!RegCreateKeyExW(HKEY_LOCAL_MACHINE, key_name, 0, NULL, 0, KEY_ALL_ACCESS, NULL, &key, NULL)) {
            if (!SetupInstallFromInfSectionW(NULL, inf, section, SPINST_REGISTRY, key, NULL, 0, NULL, NULL, NULL, NULL))
                failed(section);
            RegCloseKey(key);
        }
    } else
        failed(L"AddService");
    SetupCloseInfFile(inf);
}

int wmain(int count, wchar_t **arguments)
{
    if (count != 4) return 2;
    install_device(arguments[1], arguments[2], arguments[3]);
    install_event_log(arguments[1], L"viordma.ndi.Services");
    return 0;
}
