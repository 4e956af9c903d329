"""The configuration that a server starts with: the file that was named, the one in the data folder, or the last one."""

from dataclasses import replace

from gpuyard.config.reading import loads, read_text
from gpuyard.control.commands.configs import StartFile
from gpuyard.control.fleet import Fleet, choose_fleet
from gpuyard.control.options import Options, check_address, check_shared
from gpuyard.control.places import DataDir


def read_fleet(options: Options, data: DataDir) -> tuple[Fleet, StartFile]:
    """What the server works with, and the file that says so."""
    path = options.config
    if path is None and data.config.is_file():
        path = data.config
    if path is None:
        last = data.remembered()
        if last is not None:
            fleet = choose_fleet(loads(*last), options.emulate)
            names = [cluster.name for cluster in fleet.clusters]
            plural = "s" if len(names) > 1 else ""
            what = f"cluster{plural} {', '.join(names)}{' and `auth`' if fleet.access is not None else ''}"
            where = f"as at the last start, from {last[1]}; another: `yard up --config FILE`"
            note = f"no yard.yaml was given: {what} {where}"
            return replace(fleet, notes=(*fleet.notes, note)), StartFile(
                fleet.settings, *last, remembered=True
            )
        fleet = choose_fleet(None, options.emulate)
        return fleet, StartFile(fleet.settings)
    text = read_text(path, lasting=True)
    fleet = choose_fleet(loads(text, str(path)), options.emulate)
    return fleet, StartFile(fleet.settings, text, str(path))


def remember(file: StartFile, options: Options, data: DataDir) -> None:
    """Keep the file of this start for the next one, where it is not found by itself."""
    if options.config is not None:
        data.remember(file.text, file.name)
    elif not file.remembered:
        # The file in the data folder is found by itself; one that is taken away is not to come back.
        data.forget()


def check(options: Options) -> None:
    """Raise what is wrong with the options, before a process is made for them."""
    check_address(options)
    check_shared(options)
    read_fleet(options, DataDir(options.data))
