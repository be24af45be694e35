"""The words of the shop: what its products, brands, cities and people are called. All of them are invented."""

from __future__ import annotations

from itertools import product

import pyarrow as pa

_NOUNS_BY_CATEGORY = {
    "Kitchen": ("Kettle", "Pan", "Bowl", "Knife", "Mug", "Tray", "Ladle", "Grater"),
    "Furniture": ("Chair", "Stool", "Table", "Shelf", "Bench", "Desk", "Cabinet", "Sideboard"),
    "Lighting": ("Lamp", "Lantern", "Candle", "Sconce", "Spotlight", "Chandelier"),
    "Garden": ("Spade", "Rake", "Planter", "Hose", "Trowel", "Bird House", "Parasol"),
    "Textiles": ("Blanket", "Cushion", "Curtain", "Towel", "Rug", "Quilt", "Apron"),
    "Outdoor": ("Tent", "Backpack", "Flask", "Hammock", "Compass", "Sleeping Bag"),
    "Toys": ("Puzzle", "Kite", "Train", "Doll House", "Spinning Top", "Yo-Yo"),
    "Stationery": ("Notebook", "Pen", "Folder", "Calendar", "Stapler", "Inkwell"),
    "Sports": ("Racket", "Ball", "Skipping Rope", "Dumbbell", "Helmet", "Whistle"),
    "Audio": ("Speaker", "Radio", "Turntable", "Headset", "Microphone"),
}

NOUNS = pa.array([noun for nouns in _NOUNS_BY_CATEGORY.values() for noun in nouns])
NOUN_CATEGORIES = pa.array([category for category, nouns in _NOUNS_BY_CATEGORY.items() for _ in nouns])
"""The category of the noun at the same place."""

ADJECTIVES = pa.array(
    "Amber Bold Bright Calm Classic Clever Cosy Crisp Dapper Deep Eager Early Fine Folding Gentle Golden Grand Handy "
    "Heavy Humble Jolly Keen Light Little Lucky Mellow Modern Noble Plain Polished Proud Quiet Rapid Rustic Silent "
    "Slim Smart Solid Sturdy Tidy".split()
)

MATERIALS = pa.array(
    "Ash Bamboo Birch Brass Ceramic Clay Copper Cork Cotton Enamel Felt Glass Iron Leather Linen Oak Paper Steel "
    "Stone Wool".split()
)

BRANDS = pa.array(
    [start + end for start, end in product("Al Bo Ca Do El Fa Gi Ha Ki Lo Mo Na Or Pe Qu".split(),
                                           "bera dova lino mara nexa ria sento tova vik zano".split())]
)  # fmt: skip

VENDORS = pa.array(
    [
        f"{name} {kind}"
        for name, kind in product(
            "Alder Beacon Cedar Delta Ember Falcon Granite Harbour Iris Juniper Kestrel Lagoon Meadow North Orchid "
            "Prairie Quarry River Summit Tundra".split(),
            "Trading,Supply,Works,Partners,& Sons,Imports,Wholesale,Goods".split(","),
        )
    ]
)

_CITIES_BY_REGION = {
    "North": ("Aldmoor", "Brackwater", "Cairnford", "Dunhaven", "Eastfell"),
    "East": ("Fenbridge", "Goldmere", "Harwick", "Islebury", "Kelsham"),
    "South": ("Larkspur Bay", "Marlow Sands", "Netherton", "Oakhollow", "Pinecrest"),
    "West": ("Quillport", "Ravensgate", "Saltmarsh", "Thornby", "Umberley"),
}

CITIES = pa.array([city for cities in _CITIES_BY_REGION.values() for city in cities])
CITY_REGIONS = pa.array([region for region, cities in _CITIES_BY_REGION.items() for _ in cities])
"""The region of the city at the same place."""

FIRST_NAMES = pa.array(
    "Ada Ben Chloe Dario Elif Finn Grace Hana Ivo Jonas Kaya Lena Mateo Nadia Oscar Priya Quinn Rosa Samir Tessa Uma "
    "Viktor Wanda Xenia Yusuf Zoe".split()
)

LAST_NAMES = pa.array(
    "Abel Berg Costa Dietz Evans Falk Garcia Hoang Ito Jensen Khan Lopez Moreau Novak Okafor Patel Reyes Silva Tanaka "
    "Urban Vogel Weber Young Zeller".split()
)

SEGMENTS = pa.array(["Consumer", "Member", "Business", "Student"])
